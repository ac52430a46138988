//! Grammars that are refused, and their messages.

use pl_grammar::{GrammarError, check};

use super::*;

#[test]
fn wrong_grammars_are_refused_with_their_line() {
    let message = |grammar: &Grammar| check(grammar).unwrap_err().to_string();
    let unknown = message(&lark("start: a\na: missing\n"));
    assert!(unknown.contains("missing"), "{unknown}");
    let syntax = message(&lark("start: \"a\"\nb: (\n"));
    assert!(syntax.contains('2') || syntax.contains('3'), "{syntax}");
    assert!(message(&lark("")).contains("the grammar is not valid"));
    assert!(message(&Grammar::JsonSchema("{".to_owned())).contains("line 1"));
    assert!(message(&Grammar::JsonSchema("{\"type\": \"bird\"}".to_owned())).contains("bird"));
    for endless in ["start: \"a\" start", "start: /a{40000}/"] {
        let error = check(&lark(endless)).unwrap_err();
        let is_refused = matches!(
            error,
            GrammarError::NoText { .. } | GrammarError::TooLarge { .. } | GrammarError::Lark(_)
        );
        assert!(is_refused, "{error:?}");
    }
    for grammar in grammars() {
        check(&grammar).unwrap();
    }
}

#[test]
fn messages_have_no_dumps_of_states() {
    for text in
        ["start: a\na: missing\n", "start: /(/", "start: start \"a\"", "%llguidance {", "start: %json {"]
    {
        if let Err(error) = check(&lark(text)) {
            let message = error.to_string();
            assert!(!message.contains('<') && message.lines().count() <= 8, "{message}");
        }
    }
}

#[test]
fn vocabularies_without_an_end_are_refused() {
    assert!(matches!(Vocabulary::new(words(), 300, &[]), Err(GrammarError::Vocabulary(_))));
    assert!(matches!(Vocabulary::new(words(), 300, &[300]), Err(GrammarError::Vocabulary(_))));
    assert!(matches!(Vocabulary::from_tokenizer_json("{}", 300, &[0]), Err(GrammarError::Vocabulary(_))));
}

/// A byte that the grammar needs has no token.
#[test]
fn grammars_that_the_vocabulary_cannot_write_are_refused() {
    let few = Arc::new(Vocabulary::new(vec![b"\xFFend".to_vec(), b"a".to_vec()], 2, &[0]).unwrap());
    assert!(CompiledGrammar::new(&few, &lark("start: \"a\"+")).is_ok());
    assert!(matches!(CompiledGrammar::new(&few, &lark("start: \"ab\"")), Err(GrammarError::Vocabulary(_))));
}
