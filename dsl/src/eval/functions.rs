//! The functions that expressions may call.

use super::arithmetic::order;
use super::scalar::Scalar;

/// Arguments that a function expects, if it was given others.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedArguments(pub &'static str);

/// A built-in function.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Example call, with placeholders for arguments.
    pub form: &'static str,
    /// Description of the result.
    pub doc: &'static str,
    pub(super) apply: fn(Vec<Scalar>) -> Result<Scalar, ExpectedArguments>,
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
        doc: "The largest whole number that is not above the given one.",
        apply: |given| whole(given, f64::floor),
    },
    Function {
        name: "ceil",
        form: "ceil(number)",
        doc: "The smallest whole number that is not below the given one.",
        apply: |given| whole(given, f64::ceil),
    },
    Function {
        name: "round",
        form: "round(number)",
        doc: "The nearest whole number; halves are rounded away from zero.",
        apply: |given| whole(given, f64::round),
    },
    Function {
        name: "len",
        form: "len(list)",
        doc: "The number of elements of a list, or of characters of a text.",
        apply: |given| match given.as_slice() {
            [Scalar::List(values)] => Ok(Scalar::Integer(values.len() as i64)),
            [Scalar::Text(text)] => Ok(Scalar::Integer(text.chars().count() as i64)),
            _ => Err(ExpectedArguments("a list or a text")),
        },
    },
    Function {
        name: "join",
        form: "join(list, separator)",
        doc: "The elements of a list as one text.",
        apply: |given| match given.as_slice() {
            [Scalar::List(values), Scalar::Text(between)] => {
                let parts: Vec<String> = values.iter().map(Scalar::to_text).collect();
                Ok(Scalar::Text(parts.join(between)))
            }
            _ => Err(ExpectedArguments("a list and a text")),
        },
    },
    Function {
        name: "lower",
        form: "lower(text)",
        doc: "The text in lower case.",
        apply: |given| match given.as_slice() {
            [Scalar::Text(text)] => Ok(Scalar::Text(text.to_lowercase())),
            _ => Err(ExpectedArguments("a text")),
        },
    },
    Function {
        name: "upper",
        form: "upper(text)",
        doc: "The text in upper case.",
        apply: |given| match given.as_slice() {
            [Scalar::Text(text)] => Ok(Scalar::Text(text.to_uppercase())),
            _ => Err(ExpectedArguments("a text")),
        },
    },
    Function {
        name: FILE,
        form: "file(path)",
        doc: "The text of a file, such as a prompt, relative to the file that names it. A final newline is removed.",
        apply: |_| Err(ExpectedArguments("the path of a file")),
    },
];

/// Name of the one function that reads a file.
pub(super) const FILE: &str = "file";

/// Returns the arguments, or the elements of a list if it is the only argument.
fn flatten(given: Vec<Scalar>) -> Vec<Scalar> {
    match <[Scalar; 1]>::try_from(given) {
        Ok([Scalar::List(values)]) => values,
        Ok([other]) => vec![other],
        Err(given) => given,
    }
}

fn extreme(given: Vec<Scalar>, wanted: std::cmp::Ordering) -> Result<Scalar, ExpectedArguments> {
    let expected = || ExpectedArguments("numbers, sizes or durations, all of one kind");
    let mut values = flatten(given).into_iter();
    let mut best = values.next().filter(Scalar::has_order).ok_or_else(expected)?;
    for value in values {
        if order(&value, &best).ok_or_else(expected)? == wanted {
            best = value;
        }
    }
    Ok(best)
}

fn whole(given: Vec<Scalar>, rounded: fn(f64) -> f64) -> Result<Scalar, ExpectedArguments> {
    // Up to 2^53, a float represents every whole number exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match given.as_slice() {
        [Scalar::Integer(whole)] => Ok(Scalar::Integer(*whole)),
        [Scalar::Number(number)] if rounded(*number).abs() <= EXACT => {
            Ok(Scalar::Integer(rounded(*number) as i64))
        }
        [Scalar::Number(_)] => Err(ExpectedArguments("a number below 2^53")),
        _ => Err(ExpectedArguments("a number")),
    }
}
