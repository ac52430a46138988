//! Levels 1 to 3: one small step of calculation, one step of any kind, two steps.

use super::draw::Template;

/// Level 1: one addition or subtraction with a result up to 20. The smallest models can solve it.
pub const ONE_STEP: [Template; 12] = [
    |draw| {
        let (name, thing, a, b) = (draw.name(), draw.thing(), draw.number(2, 9), draw.number(2, 9));
        (format!("{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?"), a + b)
    },
    |draw| {
        let (name, thing, a, b) = (draw.name(), draw.thing(), draw.number(6, 15), draw.number(2, 5));
        (format!("{name} has {a} {thing} and gives away {b}. How many {thing} does {name} have left?"), a - b)
    },
    |draw| {
        let (name, thing, a, b) = (draw.name(), draw.thing(), draw.number(2, 9), draw.number(2, 9));
        (
            format!(
                "{name} finds {a} {thing} on Monday and {b} {thing} on Tuesday. How many {thing} does {name} find in all?"
            ),
            a + b,
        )
    },
    |draw| {
        let ((name, other), thing) = (draw.names(), draw.thing());
        let (a, b) = (draw.number(2, 9), draw.number(2, 9));
        (
            format!(
                "{name} has {a} {thing}. {other} has {b} {thing}. How many {thing} do they have together?"
            ),
            a + b,
        )
    },
    |draw| {
        let ((name, other), thing) = (draw.names(), draw.thing());
        let (a, b) = (draw.number(6, 12), draw.number(2, 5));
        (
            format!(
                "{name} has {a} {thing}. {other} has {b} {thing}. How many more {thing} does {name} have than {other}?"
            ),
            a - b,
        )
    },
    |draw| {
        let (thing, a, b) = (draw.thing(), draw.number(6, 18), draw.number(2, 5));
        (
            format!(
                "There are {a} {thing} on the table. {b} of them fall down. How many {thing} are still on the table?"
            ),
            a - b,
        )
    },
    |draw| {
        let ((name, other), thing) = (draw.names(), draw.thing());
        let (a, b) = (draw.number(2, 9), draw.number(2, 9));
        (
            format!(
                "{name} has {a} {thing}. {other} gives {name} {b} more. How many {thing} does {name} have now?"
            ),
            a + b,
        )
    },
    |draw| {
        let (name, a, b) = (draw.name(), draw.number(5, 10), draw.number(2, 9));
        (format!("{name} is {a} years old. How old will {name} be in {b} years?"), a + b)
    },
    |draw| {
        let (a, b) = (draw.number(6, 18), draw.number(2, 5));
        (format!("There are {a} birds in a tree. {b} birds fly away. How many birds are left?"), a - b)
    },
    |draw| {
        let ((thing, second), a, b) = (draw.things(), draw.number(2, 9), draw.number(2, 9));
        (format!("A bag holds {a} {thing} and {b} {second}. How many things are in the bag?"), a + b)
    },
    |draw| {
        let (name, a, b) = (draw.name(), draw.number(3, 9), draw.number(2, 9));
        (
            format!(
                "{name} walks {a} miles in the morning and {b} miles in the evening. How many miles does {name} walk?"
            ),
            a + b,
        )
    },
    |draw| {
        let (name, a, b) = (draw.name(), draw.number(8, 19), draw.number(2, 7));
        (format!("{name} has ${a} and spends ${b}. How many dollars does {name} have left?"), a - b)
    },
];

/// Level 2: one step of any kind, with larger numbers.
pub const ONE_LARGER_STEP: [Template; 10] = [
    |draw| {
        let (name, thing, a, b) = (draw.name(), draw.thing(), draw.number(12, 90), draw.number(12, 90));
        (format!("{name} had {a} {thing} and got {b} more. How many {thing} does {name} have now?"), a + b)
    },
    |draw| {
        let (name, thing, a, b) = (draw.name(), draw.thing(), draw.number(50, 99), draw.number(12, 48));
        (format!("{name} had {a} {thing} and sold {b} of them. How many {thing} are left?"), a - b)
    },
    |draw| {
        let (container, thing, a, b) =
            (draw.container(), draw.thing(), draw.number(3, 12), draw.number(3, 12));
        (
            format!("There are {a} {container} with {b} {thing} in each. How many {thing} are there in all?"),
            a * b,
        )
    },
    |draw| {
        let (name, thing, b, each) = (draw.name(), draw.thing(), draw.number(2, 9), draw.number(3, 12));
        let a = b * each;
        (
            format!(
                "{name} shares {a} {thing} equally among {b} friends. How many {thing} does each friend get?"
            ),
            each,
        )
    },
    |draw| {
        let (name, a, b) = (draw.name(), draw.number(3, 15), draw.number(3, 12));
        (format!("{name} earns ${a} an hour and works {b} hours. How many dollars does {name} earn?"), a * b)
    },
    |draw| {
        let (container, thing, b, n) =
            (draw.container(), draw.thing(), draw.number(3, 12), draw.number(3, 12));
        let a = b * n;
        (format!("{a} {thing} are packed into {container} of {b}. How many {container} are needed?"), n)
    },
    |draw| {
        let (name, a, b) = (draw.name(), draw.number(15, 60), draw.number(2, 7));
        (format!("{name} reads {a} pages a day. How many pages does {name} read in {b} days?"), a * b)
    },
    |draw| {
        let (thing, a, b) = (draw.thing(), draw.number(2, 9), draw.number(3, 15));
        (format!("One of the {thing} costs ${a}. How many dollars do {b} {thing} cost?"), a * b)
    },
    |draw| {
        let ((name, other), thing, a, b) =
            (draw.names(), draw.thing(), draw.number(4, 25), draw.number(2, 6));
        (
            format!(
                "{name} has {a} {thing}. {other} has {b} times as many. How many {thing} does {other} have?"
            ),
            a * b,
        )
    },
    |draw| {
        let (a, b) = (draw.number(20, 70), draw.number(2, 8));
        (format!("A car drives {a} miles every hour. How many miles does it drive in {b} hours?"), a * b)
    },
];

/// Level 3: two steps.
pub const TWO_STEPS: [Template; 10] = [
    |draw| {
        let (name, thing) = (draw.name(), draw.thing());
        let (a, b, c) = (draw.number(10, 40), draw.number(5, 30), draw.number(2, 9));
        (
            format!(
                "{name} has {a} {thing}. {name} buys {b} more and gives {c} to a friend. How many {thing} does {name} have now?"
            ),
            a + b - c,
        )
    },
    |draw| {
        let (name, container, thing) = (draw.name(), draw.container(), draw.thing());
        let (a, b, c) = (draw.number(3, 12), draw.number(3, 12), draw.number(2, 8));
        (
            format!(
                "{name} has {a} {container} with {b} {thing} in each, and {c} more {thing} on the table. How many {thing} does {name} have?"
            ),
            a * b + c,
        )
    },
    |draw| {
        let (name, thing) = (draw.name(), draw.thing());
        let (a, b) = (draw.number(2, 9), draw.number(2, 9));
        let paid = a * b + draw.number(1, 20);
        (
            format!(
                "{name} buys {a} {thing} for ${b} each and pays with ${paid}. How many dollars does {name} get back?"
            ),
            paid - a * b,
        )
    },
    |draw| {
        let ((name, other), thing) = (draw.names(), draw.thing());
        let (a, b) = (draw.number(4, 20), draw.number(2, 5));
        (
            format!(
                "{name} has {a} {thing}. {other} has {b} times as many as {name}. How many {thing} do they have together?"
            ),
            a + a * b,
        )
    },
    |draw| {
        let (name, thing) = (draw.name(), draw.thing());
        let (a, b, each) = (draw.number(2, 6), draw.number(3, 30), draw.number(2, 9));
        let total = a * each + b;
        (
            format!(
                "{name} has {total} {thing}. {name} keeps {b} and shares the rest equally among {a} children. How many {thing} does each child get?"
            ),
            each,
        )
    },
    |draw| {
        let name = draw.name();
        let (a, b, c) = (draw.number(8, 20), draw.number(3, 8), draw.number(5, 24));
        (
            format!(
                "{name} earns ${a} an hour. {name} works {b} hours and then spends ${c}. How many dollars of the pay are left?"
            ),
            a * b - c,
        )
    },
    |draw| {
        let ((thing, second), name) = (draw.things(), draw.name());
        let (a, b, c, d) = (draw.number(2, 8), draw.number(2, 9), draw.number(2, 8), draw.number(2, 9));
        (
            format!(
                "{name} buys {a} {thing} for ${b} each and {c} {second} for ${d} each. How many dollars does {name} spend?"
            ),
            a * b + c * d,
        )
    },
    |draw| {
        let name = draw.name();
        let (a, days, left) = (draw.number(5, 25), draw.number(3, 9), draw.number(10, 60));
        let pages = a * days + left;
        (
            format!(
                "A book has {pages} pages. {name} reads {a} pages a day for {days} days. How many pages are left to read?"
            ),
            left,
        )
    },
    |draw| {
        let (container, thing) = (draw.container(), draw.thing());
        let (a, b, broken) = (draw.number(4, 12), draw.number(5, 12), draw.number(2, 15));
        (
            format!(
                "A shop gets {a} {container} with {b} {thing} in each. {broken} {thing} are spoiled. How many good {thing} are there?"
            ),
            a * b - broken,
        )
    },
    |draw| {
        let (name, a, b, days) = (draw.name(), draw.number(2, 12), draw.number(2, 12), draw.number(2, 9));
        (
            format!(
                "{name} runs {a} miles each morning and {b} miles each evening. How many miles does {name} run in {days} days?"
            ),
            (a + b) * days,
        )
    },
];
