//! Masks against references that try every token.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

/// Returns the number of open brackets, or `None` if `text` begins no text of [`BRACKETS`].
fn open_brackets(text: &[u8]) -> Option<usize> {
    text.iter().try_fold(0usize, |open, byte| match byte {
        b'(' => Some(open + 1),
        b')' => open.checked_sub(1),
        _ => None,
    })
}

/// The reference knows nothing of grammars: it counts brackets.
#[test]
fn masks_of_brackets_equal_those_of_a_counter() {
    let grammar = Arc::new(CompiledGrammar::new(&vocabulary(), &lark(BRACKETS)).unwrap());
    let words = words();
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut constraint = Constraint::new(&grammar, 4000);
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..25 {
            let mask = constraint.mask().unwrap();
            for (token, word) in words.iter().enumerate() {
                let expected = match token as u32 {
                    END => open_brackets(&text) == Some(0),
                    _ => !word.is_empty() && open_brackets(&[&text[..], word].concat()).is_some(),
                };
                assert_eq!(mask.allows(token as u32), expected, "{word:?} after {text:?}");
            }
            assert!((0..5).all(|padding| !mask.allows(words.len() as u32 + padding)));
            let allowed: Vec<u32> = (1..words.len() as u32).filter(|token| mask.allows(*token)).collect();
            let token = constraint.advance(allowed[rng.next_u32() as usize % allowed.len()]).unwrap();
            text.extend_from_slice(&words[token as usize]);
        }
    }
}

/// The reference takes each token byte by byte, over a vocabulary of single bytes.
#[test]
fn masks_equal_those_of_single_bytes() {
    let words = words();
    let bytes: Vec<Vec<u8>> = words[..258].to_vec();
    let single = Arc::new(Vocabulary::new(bytes, 258, &[END]).unwrap());
    for grammar in grammars() {
        let own = Arc::new(CompiledGrammar::new(&vocabulary(), &grammar).unwrap());
        let slow = Arc::new(CompiledGrammar::new(&single, &grammar).unwrap());
        let after = |text: &[u8]| {
            let mut constraint = Constraint::new(&slow, 1_000_000);
            text.iter()
                .all(|byte| {
                    let token = u32::from(*byte) + 2;
                    constraint.mask().unwrap().allows(token) && constraint.advance(token).is_ok()
                })
                .then_some(constraint)
        };
        for seed in 0..6 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut constraint = Constraint::new(&own, 1_000_000);
            let mut text: Vec<u8> = Vec::new();
            for _ in 0..12 {
                let mask = constraint.mask().unwrap();
                let mut reference = after(&text).unwrap().mask().unwrap();
                assert_eq!(mask.allows(END), reference.allows(END), "the end after {text:?}");
                for token in 2..words.len() as u32 {
                    let word = &words[token as usize];
                    // The first byte decides for most.
                    let expected = reference.allows(u32::from(word[0]) + 2)
                        && (word.len() == 1 || after(&[&text[..], word].concat()).is_some());
                    assert_eq!(mask.allows(token), expected, "{word:?} after {text:?} of {grammar:?}");
                }
                reference = mask.clone();
                let allowed: Vec<u32> =
                    (1..words.len() as u32).filter(|token| reference.allows(*token)).collect();
                if allowed.is_empty() {
                    break;
                }
                let token = constraint.advance(allowed[rng.next_u32() as usize % allowed.len()]).unwrap();
                text.extend_from_slice(&words[token as usize]);
            }
        }
    }
}

#[test]
fn masks_change_only_the_logits_that_they_exclude() {
    let grammar = Arc::new(CompiledGrammar::new(&vocabulary(), &lark(STATEMENTS)).unwrap());
    let mut constraint = Constraint::new(&grammar, 400);
    let size = words().len() + 5;
    for token in b"agent x { t = \"" {
        let mask = constraint.mask().unwrap();
        let mut logits: Vec<f32> = (0..size).map(|at| at as f32).collect();
        mask.apply(&mut logits);
        for (at, logit) in logits.iter().enumerate() {
            let expected = if mask.allows(at as u32) { at as f32 } else { f32::NEG_INFINITY };
            assert_eq!(*logit, expected);
        }
        constraint.advance(u32::from(*token) + 2).unwrap();
    }
}
