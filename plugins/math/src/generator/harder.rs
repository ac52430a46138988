//! Levels 4 and 5: three or more steps of calculation; fractions and percentages.

use super::draw::Template;

/// Level 4: three or more steps.
pub const THREE_STEPS: [Template; 8] = [
    |draw| {
        let ((name, other), thing) = (draw.names(), draw.thing());
        let (a, b) = (draw.number(5, 20), draw.number(3, 5));
        let c = draw.number(2, a);
        (
            format!(
                "{name} has {a} {thing}. {other} has {b} times as many {thing} as {name}. {other} gives {c} {thing} to {name}. How many more {thing} does {other} have than {name} now?"
            ),
            a * b - c - (a + c),
        )
    },
    |draw| {
        let (name, (thing, second)) = (draw.name(), draw.things());
        let (a, b, c, d) = (draw.number(2, 8), draw.number(2, 9), draw.number(2, 8), draw.number(2, 9));
        let change = draw.number(1, 25);
        let paid = a * b + c * d + change;
        (
            format!(
                "{name} buys {a} {thing} at ${b} each and {c} {second} at ${d} each. {name} pays with ${paid}. How many dollars of change does {name} get?"
            ),
            change,
        )
    },
    |draw| {
        let (name, days) = (draw.name(), draw.number(4, 6));
        let (pay, hours, spent) = (draw.number(9, 20), draw.number(4, 8), draw.number(5, 20));
        (
            format!(
                "{name} works {hours} hours a day, {days} days a week, for ${pay} an hour, and spends ${spent} every week on the bus. How many dollars are left after one week?"
            ),
            pay * hours * days - spent,
        )
    },
    |draw| {
        let (container, thing) = (draw.container(), draw.thing());
        let (a, b, each, n) = (draw.number(3, 9), draw.number(4, 12), draw.number(2, 6), draw.number(2, 6));
        // The remainder to whole packs for all, which is never zero.
        let extra = each * n - (a * b) % (each * n);
        let total = a * b + extra;
        (
            format!(
                "A shop has {a} {container} of {b} {thing} and {extra} loose ones. It packs all of them into packs of {each} and gives an equal number of packs to {n} customers. How many packs does each customer get?"
            ),
            total / each / n,
        )
    },
    |draw| {
        let (name, thing) = (draw.name(), draw.thing());
        let (a, b, c, d) = (draw.number(10, 30), draw.number(2, 3), draw.number(4, 9), draw.number(2, 9));
        (
            format!(
                "{name} made {a} {thing} on Monday, {b} times as many on Tuesday, and {c} fewer on Wednesday than on Tuesday. {name} then lost {d}. How many {thing} are left?"
            ),
            a + a * b + (a * b - c) - d,
        )
    },
    |draw| {
        let (speed, hours, second, more) =
            (draw.number(30, 60), draw.number(2, 5), draw.number(20, 50), draw.number(2, 4));
        let rest = draw.number(20, 90);
        let total = speed * hours + second * more + rest;
        (
            format!(
                "A trip is {total} miles long. A bus drives {hours} hours at {speed} miles an hour, then {more} hours at {second} miles an hour. How many miles are left?"
            ),
            rest,
        )
    },
    |draw| {
        let (name, other) = draw.names();
        let (a, b, c) = (draw.number(6, 15), draw.number(2, 4), draw.number(2, 9));
        (
            format!(
                "{name} is {a} years old. {other} is {b} times as old as {name}. How old will the two be together in {c} years?"
            ),
            a + a * b + 2 * c,
        )
    },
    |draw| {
        let (rows, seats, groups, size) =
            (draw.number(8, 20), draw.number(8, 20), draw.number(3, 7), draw.number(4, 9));
        (
            format!(
                "A theatre has {rows} rows of {seats} seats. {groups} groups of {size} people come in, and then 10 more people. How many seats are free?"
            ),
            rows * seats - groups * size - 10,
        )
    },
];

/// Level 5: fractions and percentages. Numbers are chosen so that the result of every step is whole.
pub const SHARES: [Template; 8] = [
    |draw| {
        let (name, thing) = (draw.name(), draw.thing());
        let (percent, a) = (draw.multiple(10, 10, 60), draw.multiple(10, 40, 300));
        let b = draw.number(5, 40);
        (
            format!(
                "{name} has {a} {thing} and gives away {percent}% of them. Then {name} buys {b} more. How many {thing} does {name} have now?"
            ),
            a - a * percent / 100 + b,
        )
    },
    |draw| {
        let (part, whole) = *draw.pick(&[(1, 2), (1, 3), (2, 3), (1, 4), (3, 4), (2, 5), (3, 5)]);
        let (name, thing, unit) = (draw.name(), draw.thing(), draw.number(3, 30));
        let a = unit * whole * 2;
        (
            format!(
                "{name} picks {a} {thing} and sells {part}/{whole} of them. The rest is shared equally between two friends. How many {thing} does each friend get?"
            ),
            (a - a * part / whole) / 2,
        )
    },
    |draw| {
        let (name, thing) = (draw.name(), draw.thing());
        let (price, percent, n) = (draw.multiple(20, 20, 200), draw.multiple(5, 5, 50), draw.number(2, 8));
        (
            format!(
                "A shop sells {thing} for ${price} each, at {percent}% off. {name} buys {n} of them. How many dollars does {name} pay?"
            ),
            n * (price - price * percent / 100),
        )
    },
    |draw| {
        let (a, girls, percent) =
            (draw.multiple(50, 100, 600), draw.multiple(10, 20, 80), draw.multiple(20, 20, 80));
        (
            format!(
                "A school has {a} students. {girls}% of them are girls. {percent}% of the girls play chess. How many girls do not play chess?"
            ),
            {
                let number = a * girls / 100;
                number - number * percent / 100
            },
        )
    },
    |draw| {
        let (name, unit, saved) = (draw.name(), draw.number(4, 20), draw.number(2, 10));
        let pay = unit * 12;
        (
            format!(
                "{name} earns ${pay} a week. {name} spends 1/3 of it on rent and 1/4 of it on food, and saves ${saved} of the rest. How many dollars are left?"
            ),
            pay - pay / 3 - pay / 4 - saved,
        )
    },
    |draw| {
        let ((name, other), thing) = (draw.names(), draw.thing());
        let (unit, percent) = (draw.multiple(20, 20, 100), draw.multiple(10, 10, 90));
        (
            format!(
                "{name} has {unit} {thing}. {other} has {percent}% more {thing} than {name}. How many {thing} do they have together?"
            ),
            unit + unit + unit * percent / 100,
        )
    },
    |draw| {
        let (part, whole) = *draw.pick(&[(1, 2), (1, 4), (3, 4), (2, 5), (4, 5)]);
        let (rate, minutes) = (draw.number(2, 15), draw.number(3, 20));
        // The missing amount takes whole minutes, which determines the size of the tank.
        let missing = rate * minutes * (whole - part);
        let tank = missing / (whole - part) * whole;
        let percent = 100 * part / whole;
        (
            format!(
                "A tank holds {tank} liters and is {percent}% full. A pump adds {rate} liters a minute. How many minutes does it take to fill the tank?"
            ),
            missing / rate,
        )
    },
    |draw| {
        let (name, container, thing) = (draw.name(), draw.container(), draw.thing());
        let (boxes, each) = (draw.number(3, 9), draw.multiple(10, 10, 60));
        let (percent, price) = (draw.multiple(10, 10, 50), draw.number(2, 6));
        let total = boxes * each;
        (
            format!(
                "{name} has {boxes} {container} with {each} {thing} in each. {percent}% of all {thing} are broken. The others are sold for ${price} each. How many dollars does {name} get?"
            ),
            (total - total * percent / 100) * price,
        )
    },
];
