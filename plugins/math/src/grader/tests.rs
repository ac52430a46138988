//! Pairs of answers that the grader must accept or refuse.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn equal(pairs: &[(&str, &str)]) {
    for (a, b) in pairs {
        assert!(grade(a, b), "{a} should equal {b}: {:?} {:?}", parses(a), parses(b));
        assert!(grade(b, a), "{b} should equal {a}");
    }
}

#[track_caller]
fn different(pairs: &[(&str, &str)]) {
    for (a, b) in pairs {
        assert!(!grade(a, b), "{a} should not equal {b}: {:?} {:?}", parses(a), parses(b));
        assert!(!grade(b, a), "{b} should not equal {a}");
    }
}

#[test]
fn mixed_numbers_are_not_the_fractions_of_their_digits() {
    different(&[
        ("31/2", "3 1/2"),
        ("13/4", "1 3/4"),
        ("123/4", "12 3/4"),
        ("12/3", "1 2/3"),
        ("11/2", r"The answer is \boxed{1 1/2}"),
        ("$31/2$", "$3$ $1/2$"),
    ]);
    equal(&[("7/2", "3 1/2"), ("3  1/2", "3 1/2"), ("x = 3", "x=3")]);
}

#[test]
fn numbers() {
    equal(&[
        ("42", "42.0"),
        ("1,234", "1234"),
        ("1/2", "0.5"),
        ("50%", "0.5"),
        ("50%", "50"),
        ("$18", "18 dollars"),
        (r"2\frac{1}{3}", "7/3"),
        ("3 1/2", "3.5"),
        ("-5", "−5"),
        (r"10\text{ units}", "10"),
        ("15 cm^2", "15"),
        (r"90^\circ", "90 degrees"),
        ("2^{10}", "1024"),
        ("5!", "120"),
        (r"\binom{5}{2}", "10"),
        (".1", "0.1"),
        ("1e3", "1000"),
        ("2.5E-3", "0.0025"),
        ("204_5", "204"),
        (r"112_{\text{3}}", "112_3"),
        (r"\text{145}", "145"),
        (r"\text{27.5 cm}", "27.5"),
        (r"{3 \over 4}", "0.75"),
        (r"\frac{\pi 10}{27}", r"\frac{10}{27}\pi"),
        ("--5", "5"),
        (r"\approx 5", "5"),
        (r"3.5\ldots", "3.5"),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
        (r"\gcd(12, 18)", "6"),
        (r"\text{lcm}(4,6)", "12"),
        (r"\max\{3, 7, 5\}", "7"),
        (r"17 \bmod 5", "2"),
        (r"x \equiv -1 \pmod{7}", r"x \equiv 6 (\text{mod } 7)"),
        ("2^{140}", "1393796574908163946345982392040522594123776"),
        (r"x + 2 = 7 \Rightarrow x = 5", "5"),
        (r"\begin{vmatrix}0&2&1\\3&4&1\\1&1&1\end{vmatrix}", "-5"),
    ]);
    different(&[
        ("1/2", "1/3"),
        ("0.33", "1/3"),
        ("28", "28/100"),
        ("12.5%", "12.5"),
        ("101_2", "101_3"),
        (r"\sqrt10", r"\sqrt{10}"),
        ("12", "-12"),
        ("1000000", "1000001"),
        ("1393796574908163946345982392040522594123776", "1393796574908163946345982392040522594123777"),
        (r"6 \pmod{7}", "5"),
        (r"9\text{ min}", r"9\min(2, 3)"),
        ("1,000", "1"),
        ("2^{1000}", "3^{1000}"),
        ("5", ""),
        ("5 cats chased 3 dogs", "5"),
        ("", ""),
    ]);
}

#[test]
fn latex() {
    equal(&[
        (r"\frac12", r"\dfrac{1}{2}"),
        (r"\frac1{72}", "1/72"),
        (r"\sqrt{8}", r"2\sqrt2"),
        (r"\sqrt[3]{27}", "3"),
        (r"\frac{\pi}{2}", "1.5707963"),
        (r"\sin\frac{\pi}{6}", "0.5"),
        (r"\log_2 8", "3"),
        (r"\left(x-2\right)\left(x+2\right)", "x^2-4"),
        (r"\sin^2 x + \cos^2 x", "1"),
        (r"\frac{3}{4}i", r"\frac34i"),
        (r"e^{i\pi}", "-1"),
        (r"|{-3}|", "3"),
        (r"\lfloor 2.7 \rfloor", "2"),
        ("x_1+x_2", "x_{2}+x_{1}"),
        (r"k_{\mathrm{B}} T_\alpha", r"T_{\alpha} k_B"),
        (r"\frac{v^2_0}{2g}", r"\frac{v_{0}^{2}}{2g}"),
        (r"I_{\max}", r"I_{\text{max}}"),
        (r"\max(x, y)", r"\max\{y, x\}"),
        (r"\lceil x \rceil", r"-\lfloor -x \rfloor"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
    ]);
    different(&[
        ("x^2", "x^3"),
        ("|x|", "x"),
        (r"\lfloor n/9 \rfloor", r"\lfloor (n+1)/9 \rfloor"),
        (r"\max(x, y)", "x"),
        (r"v_1^2", "v_2^2"),
        (r"\sqrt{2}", "1.41"),
        ("x", "y"),
        ("2x", "x^2"),
        ("4", r"4\sqrt{2}"),
    ]);
}

#[test]
fn forms() {
    equal(&[
        ("{1,2,3}", "3, 2, 1"),
        ("1, 2, 1", "2, 1"),
        ("{35 cm, 4}", "4, 35"),
        (r"\{1, 2\}", "2 and 1"),
        ("(1, 2)", r"\left( 1, 2 \right)"),
        (r"\pm 3", "-3, 3"),
        ("x = 5", "5"),
        ("y = 2x + 3", "2x - y + 3 = 0"),
        ("x <= 1", "-x >= -1"),
        ("7:32", "S = 7:32"),
        (
            r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}1\\1\end{pmatrix}",
            r"\begin{bmatrix}3\\7\end{bmatrix}",
        ),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\text{Evelyn}", r"So it is \[evelyn\]"),
        ("LQSX", "LQSX."),
        ("(B)", "B"),
        (r"\emptyset", r"\{\}"),
        ("8 = x", "x = 8"),
        ("x = 1, y = 2", "y = 2, x = 1"),
        (r"x \in \{1, 2\}", r"x = 1 \text{ or } x = 2"),
        (r"(0,2) \cup (1,3]", "(0,3]"),
        (r"\mathbb{R} \setminus \{0\}", r"(-\infty,0) \cup (0,\infty)"),
        ("(1; 2)", "(1, 2)"),
        ("[2, 1]", "(2, 1)"),
        ("3:4", r"\frac{6}{8}"),
        ("3 < x < 5", "5 > x > 3"),
        ("2x < 6", "x < 3"),
        (r"x < 3\text{ cm}", "x < 3"),
        (r"\text{(odd)}", r"\textit{ odd }"),
        (r"\textbf{(B) }7", r"\displaystyle \textbf{(B) }7"),
    ]);
    different(&[
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"),
        ("x = 5", "y = 5"),
        ("x = 1, y = 2", "x = 2, y = 1"),
        ("m < 19", "y < 19"),
        ("[1, 2]", "(1, 2)"),
        ("(1, 2)", "(2, 1)"),
        ("[0,1)", "(0,1)"),
        ("1, 2", "1, 2, 3"),
        (r"\pm 3", "3"),
        ("x > 5", "x < 5"),
        ("x < 1", "x > -1"),
        ("Evelyn", "Carla"),
        ("7:32", "32:7"),
    ]);
}

#[test]
fn the_right_answer_sets_the_form() {
    for (gold, pred) in [
        ("5", "2x = 5"),
        ("0 \\le x < 1", "[0,1)"),
        (r"x \leq 2", r"x \in (-\infty, 2]"),
        (r"1\leq|z|\leq 2", "[-2,-1] \\cup [1,2]"),
        ("|x| < 3", "(-3, 3)"),
        ("|y - 2| < 8", "(-6, 10)"),
        ("2x < 6", r"(-\infty, 3)"),
        ("1, 2", "(2, 1)"),
        (r"\tan \alpha = 2", "2"),
        ("LQSX", "k = LQSX"),
        (r"\frac{2}{n}", r"\frac{2}{n} \approx 0.7"),
        ("(1, 2)", r"\{1, 2\}"),
        ("W(n) = 1", "W(x) = 1"),
    ] {
        assert!(grade(gold, pred), "{pred} should answer {gold}");
    }
    for (gold, pred) in [
        ("2x = 5", "5"),
        ("a + 3z = 0", "0"),
        ("[0,1)", "0 \\le x < 1"),
        ("(1, 2)", "2, 1"),
        ("[1, 2]", r"\{1, 2\}"),
        ("x = 1, y = 2", "(2, 1)"),
        ("0 < x < 1", r"-x \in (0,1)"),
    ] {
        assert!(!grade(gold, pred), "{pred} should not answer {gold}");
    }
}

#[test]
fn hostile_answers_are_graded_quickly() {
    let hostile = [
        "(".repeat(4000),
        "{".repeat(100_000),
        format!("{}1{}", "(".repeat(2000), ")".repeat(2000)),
        format!("1{}", "^9".repeat(2000)),
        format!("9{}", "!".repeat(2000)),
        format!("1{}", "/1".repeat(2000)),
        format!("1{}", ",1".repeat(2000)),
        format!("x{}", "+x".repeat(2000)),
        "\\frac".repeat(800),
        "\\sqrt".repeat(800),
        "\\boxed{".repeat(20_000),
        "|".repeat(4000),
        "-".repeat(4000),
        "$".repeat(60_000),
        "9^9^9^9^9".to_owned(),
        "=".repeat(4000),
        "1±".repeat(500),
        "\\begin{pmatrix}".repeat(200),
        "sin ".repeat(1000),
        "5000!".repeat(800),
        (1000..1128).map(|n| format!("{n}!,")).collect(),
        format!("x{}", r" \cup [1,2]".repeat(300)),
        r"\setminus".repeat(400),
        r"\begin{vmatrix}".repeat(200),
        format!(r"\begin{{vmatrix}}{}\end{{vmatrix}}", r"1&2\\".repeat(400)),
        r"\text{".repeat(800),
        "1_{".repeat(1000),
        format!("{{1{}", r"\over 2".repeat(500)),
        "1E999999999".to_owned(),
        format!("1{}", "_2".repeat(1500)),
        format!("x{}", "^{".repeat(2000)),
        format!("x{}", "^2_0".repeat(1000)),
        "9".repeat(4000),
        "{ is ".repeat(13_000),
        r"\gcd(".repeat(600),
        format!(r"\max({}1)", "1,".repeat(1900)),
        format!("x{}", r"\mod 7".repeat(600)),
        format!("x{}", r"\Rightarrow x".repeat(300)),
        format!("{}x", r"\lfloor x/9 \rfloor +".repeat(180)),
        (1..120).map(|n| format!(r"\lfloor x/{n} \rfloor,")).collect(),
    ];
    for text in &hostile {
        assert!(!grade("42", text), "{}", &text[..20]);
        let _ = grade(text, text);
    }
}

proptest! {
    // Failing cases belong in the tests above, not in a file.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_can_be_graded(gold in ".{0,60}", pred in r"[\\a-z0-9{}()\[\]^_$,.;:|=<>+\-*/!%&~ π√≤∞±]{0,80}") {
        prop_assert_eq!(grade(&gold, &pred), grade(&gold, &pred));
        prop_assert_eq!(grade(&pred, &gold), grade(&pred, &gold));
    }

    #[test]
    fn any_list_of_symbols_can_be_graded(parts in prop::collection::vec(prop::sample::select(vec![
        "1", "2.5", "x", "(", ")", "[", "]", r"\{", r"\}", "{", "}", ",", ";", ":", "=", "<", r"\le ", r"\in ", "+", "-", "/", "^", "_", "!", "%", "|",
        r"\frac", r"\sqrt", r"\over ", r"\pm ", r"\cup ", r"\cap ", r"\setminus ", r"\mathbb{R}", r"\infty ", r"\pi ", "i", "e", r"\sin ", r"\log_",
        r"\text{", r"\begin{vmatrix}", r"\end{vmatrix}", "&", r"\\", r"\lfloor ", r"\rfloor ", r"\binom", r"\approx ", "E5",
    ]), 0..24), other in 0_usize..24) {
        let (gold, pred) = (parts.concat(), parts.iter().skip(other).copied().collect::<String>());
        prop_assert_eq!(grade(&gold, &pred), grade(&gold, &pred));
        prop_assert_eq!(grade(&pred, &gold), grade(&pred, &gold));
    }

    #[test]
    fn numbers_equal_themselves_however_written(n in 1_u32..10_000_000, d in 1_u32..1000) {
        let grouped = {
            let digits = n.to_string();
            let mut grouped = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        };
        prop_assert!(grade(&n.to_string(), &grouped));
        let boxed = format!("so it is \\boxed{{{n}}}.");
        prop_assert!(grade(&n.to_string(), &boxed));
        let (plain, latex) = (format!("{n}/{d}"), format!("\\frac{{{n}}}{{{d}}}"));
        prop_assert!(grade(&plain, &latex));
        prop_assert!(!grade(&n.to_string(), &(n + 1).to_string()));
    }
}
