//! The functions that expressions may call.

use crate::arithmetic::order;
use crate::diagnostic::{Code, Place, Reports, suggest};
use crate::evaluate::evaluate;
use crate::scope::Scope;
use crate::syntax::Call;
use crate::values::Scalar;

/// A function of the language.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// How it is called.
    pub form: &'static str,
    /// What it gives.
    pub doc: &'static str,
    apply: fn(Vec<Scalar>) -> Result<Scalar, String>,
}

/// Every function.
pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "min",
        form: "min(a, b, …)",
        doc: "The smallest of several numbers, sizes or durations, or of a list of them.",
        apply: |given| extreme(given, std::cmp::Ordering::Less),
    },
    Function {
        name: "max",
        form: "max(a, b, …)",
        doc: "The largest of several numbers, sizes or durations, or of a list of them.",
        apply: |given| extreme(given, std::cmp::Ordering::Greater),
    },
    Function {
        name: "floor",
        form: "floor(number)",
        doc: "The next whole number below.",
        apply: |given| whole(given, f64::floor),
    },
    Function {
        name: "ceil",
        form: "ceil(number)",
        doc: "The next whole number above.",
        apply: |given| whole(given, f64::ceil),
    },
    Function {
        name: "round",
        form: "round(number)",
        doc: "The nearest whole number; halves go away from zero.",
        apply: |given| whole(given, f64::round),
    },
    Function {
        name: "len",
        form: "len(list)",
        doc: "How many elements a list has, or characters a text.",
        apply: |given| match given.as_slice() {
            [Scalar::List(values)] => Ok(Scalar::Integer(values.len() as i64)),
            [Scalar::Text(text)] => Ok(Scalar::Integer(text.chars().count() as i64)),
            _ => Err("a list or a text".to_owned()),
        },
    },
    Function {
        name: "join",
        form: "join(list, separator)",
        doc: "The elements of a list as one text.",
        apply: |given| match given.as_slice() {
            [Scalar::List(values), Scalar::Text(between)] => {
                let parts: Vec<String> = values.iter().map(Scalar::as_inserted).collect();
                Ok(Scalar::Text(parts.join(between)))
            }
            _ => Err("a list and a text".to_owned()),
        },
    },
    Function {
        name: "lower",
        form: "lower(text)",
        doc: "The text in small letters.",
        apply: |given| match given.as_slice() {
            [Scalar::Text(text)] => Ok(Scalar::Text(text.to_lowercase())),
            _ => Err("a text".to_owned()),
        },
    },
    Function {
        name: "upper",
        form: "upper(text)",
        doc: "The text in capital letters.",
        apply: |given| match given.as_slice() {
            [Scalar::Text(text)] => Ok(Scalar::Text(text.to_uppercase())),
            _ => Err("a text".to_owned()),
        },
    },
    Function {
        name: FILE,
        form: "file(path)",
        doc: "The text of a file, such as a prompt, relative to the file that names it. A last newline is left out.",
        apply: |_| Err("the path of a file".to_owned()),
    },
];

/// Reads what no other function does: a file.
const FILE: &str = "file";

/// What a call gives. None: reported.
pub(crate) fn call(call: &Call, place: Place, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let name = &call.name;
    let Some(function) = FUNCTIONS.iter().find(|function| function.name == name.text) else {
        let known = FUNCTIONS.iter().map(|function| function.name);
        let hint = suggest(&name.text, "the functions are", known);
        let message = format!("there is no function `{}`", name.text);
        reports.error(Code::UnknownName, name.place, message, "").maybe_help(hint);
        return None;
    };
    if let Some(named) = call.arguments.iter().find_map(|argument| argument.name.as_ref()) {
        let message = format!("`{}` takes its arguments without names", function.name);
        reports.error(Code::WrongType, named.place, message, "").help(format!("write `{}`", function.form));
        return None;
    }
    let given: Vec<Option<Scalar>> =
        call.arguments.iter().map(|argument| evaluate(&argument.value, scope, reports)).collect();
    let given = given.into_iter().collect::<Option<Vec<_>>>()?;
    let result = match given.as_slice() {
        [Scalar::Text(path)] if function.name == FILE => return file(path, place, scope, reports),
        _ => (function.apply)(given),
    };
    match result {
        Ok(value) => {
            scope.spend(value.size(), place, reports)?;
            Some(value)
        }
        Err(wanted) => {
            let message = format!("`{}` wants {wanted}", function.name);
            reports.error(Code::WrongType, place, message, "").help(format!("write `{}`", function.form));
            None
        }
    }
}

fn file(path: &str, place: Place, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let full = scope.path_from(place, path);
    match scope.catalog.text(&full) {
        Ok(mut text) => {
            scope.spend(text.len(), place, reports)?;
            let kept = text.trim_end_matches(['\n', '\r']).len();
            if text.len() - kept <= 2 {
                text.truncate(kept);
            }
            Some(Scalar::Text(text.replace("\r\n", "\n")))
        }
        Err(why) => {
            let message = format!("`{path}` can't be read: {why}");
            reports.error(Code::FileFailed, place, message, "");
            None
        }
    }
}

/// Arguments, or the elements of the one list among them.
fn several(given: Vec<Scalar>) -> Vec<Scalar> {
    match <[Scalar; 1]>::try_from(given) {
        Ok([Scalar::List(values)]) => values,
        Ok([other]) => vec![other],
        Err(given) => given,
    }
}

fn extreme(given: Vec<Scalar>, wanted: std::cmp::Ordering) -> Result<Scalar, String> {
    let wants = || "numbers, sizes or durations, all of one kind".to_owned();
    let mut values = several(given).into_iter();
    let mut best = values.next().filter(Scalar::has_order).ok_or_else(wants)?;
    for value in values {
        if order(&value, &best).ok_or_else(wants)? == wanted {
            best = value;
        }
    }
    Ok(best)
}

fn whole(given: Vec<Scalar>, rounded: fn(f64) -> f64) -> Result<Scalar, String> {
    // Up to here every whole number is exact as a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match given.as_slice() {
        [Scalar::Integer(whole)] => Ok(Scalar::Integer(*whole)),
        [Scalar::Number(number)] if rounded(*number).abs() <= EXACT => {
            Ok(Scalar::Integer(rounded(*number) as i64))
        }
        [Scalar::Number(_)] => Err("a number below 2^53".to_owned()),
        _ => Err("a number".to_owned()),
    }
}
