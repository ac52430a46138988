//! The search for a short ending of a text.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Instant;

use llguidance::TokenParser;
use llguidance::derivre::StateID;
use llguidance::earley::ParserRecognizer;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::Recognizer;
use parking_lot::Mutex;

use crate::vocabulary::BYTES_END;

/// Longest ending that is searched for, in bytes.
pub(crate) const LIMIT: usize = 1 << 14;

/// Lengths that are tried one after another: short endings are found without a detour to long ones.
const LENGTHS: [usize; 5] = [16, 64, 256, 2048, LIMIT];

/// Most texts that are extended in search of an ending of at most one length, as each token may need a search.
const PER_ENDING: usize = 256;

/// Most texts that are extended in search of a first text of at most one length.
const PER_TEXT: usize = 4096;

/// Most states of one lexeme that are looked at.
const STATES: usize = 1 << 14;

/// Most ways to end a lexeme that leave the lexer alike.
const ALIKE: usize = 4;

/// Number of bytes of parts of the earlier ending after which no more are tried as the rest of one text.
const RESTS: usize = 1 << 13;

/// The search for endings of the texts of one grammar.
pub(crate) struct EndingSearch {
    /// The grammar over single bytes, before any.
    start: TokenParser,
    /// The same with the states of the lexer that earlier searches have computed.
    warm: Mutex<TokenParser>,
}

impl EndingSearch {
    pub(crate) fn new(mut start: TokenParser) -> Self {
        if start.is_fresh() {
            start.start_without_prompt();
        }
        let warm = Mutex::new(with_own_lexer(&start));
        Self { start, warm }
    }

    /// Searches a short text of the grammar, until a time.
    pub(crate) fn shortest_text(&self, until: Instant) -> Option<Vec<u8>> {
        let effort = Effort { per_length: PER_TEXT, is_thorough: false, until: Some(until) };
        // Few grammars need the second search, which is longer.
        let searches = [effort, Effort { is_thorough: true, ..effort }];
        self.search(|start| searches.into_iter().find_map(|effort| find(start, &[], effort)))
    }

    /// Searches a short ending of `text`. `earlier` is an ending of it without its last token: most tokens go on within what
    /// that ending closes.
    pub(crate) fn ending(&self, text: &[u8], earlier: &[u8]) -> Option<Vec<u8>> {
        self.search(|start| {
            let mut parser = start.clone();
            // Without a time: completions must not depend on the speed of a machine.
            let effort = Effort { per_length: PER_ENDING, is_thorough: false, until: None };
            consume(&mut parser, text).then(|| find(&parser, earlier, effort))?
        })
    }

    /// Searches with a parser at the start, and once more with a new lexer if that broke down: its error is permanent, and may
    /// be due to the states of earlier searches.
    fn search(&self, search: impl Fn(&TokenParser) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        for _ in 0..2 {
            let start = self.warm.lock().clone();
            let searched = AssertUnwindSafe(|| {
                let found = search(&start);
                Ok((found, start.parser.get_error().is_some()))
            });
            match catch_unwind(searched) {
                Ok((None, true)) | Err(_) => {
                    *self.warm.lock() = with_own_lexer(&self.start);
                }
                Ok((found, _)) => return found,
            }
        }
        None
    }
}

fn with_own_lexer(parser: &TokenParser) -> TokenParser {
    let mut own = parser.clone();
    own.parser = parser.parser.deep_clone();
    own
}

/// Work of a search.
#[derive(Clone, Copy)]
struct Effort {
    /// Most texts that are extended in search of an ending of at most one length.
    per_length: usize,
    /// False if at most one text is extended per byte of that length, and escapes and other characters than those of ASCII are
    /// tried only in the absence of others.
    is_thorough: bool,
    /// Time after which nothing more is tried.
    until: Option<Instant>,
}

impl Effort {
    fn is_spent(self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Searches an ending of at most one length after another. Lengths are left out that are too short by far for the text before,
/// which had `earlier`.
fn find(parser: &TokenParser, earlier: &[u8], effort: Effort) -> Option<Vec<u8>> {
    let lengths = LENGTHS.iter().filter(|limit| **limit >= earlier.len() / 2);
    lengths.copied().find_map(|limit| search(parser, earlier, limit, effort))
}

/// A limited-discrepancy search (Harvey and Ginsberg 1995) over the lexemes of the grammar: those that are likely to close what
/// is open come first, and texts that leave that order least are extended first, short ones before long ones. Within a lexeme
/// the shortest bytes are known. Returns `None` if there is no ending of at most `limit` bytes, or if as many texts as
/// `effort` allows were extended before one was found.
fn search(start: &TokenParser, earlier: &[u8], limit: usize, effort: Effort) -> Option<Vec<u8>> {
    let mut queue = BinaryHeap::new();
    let mut created = 0;
    queue.push(Candidate {
        order: Reverse((0, 0)),
        discrepancies: 0,
        added: Vec::new(),
        states: Vec::new(),
        more: 0,
        before: Rc::new(start.clone()),
    });
    let extensions = if effort.is_thorough { effort.per_length } else { effort.per_length.min(limit) };
    for _ in 0..extensions {
        if effort.is_spent() {
            return None;
        }
        let Candidate { discrepancies, added, states, more, before, .. } = queue.pop()?;
        let mut parser = TokenParser::clone(&before);
        if !consume(&mut parser, &added[added.len() - more..]) {
            continue;
        }
        if parser.is_accepting() {
            return Some(added);
        }
        // Renews what the lexer may spend on new states, and goes on by bytes that the grammar leaves no choice of.
        let Ok(next) = parser.compute_mask() else { continue };
        let rests = (0..earlier.len()).map(|from| &earlier[from..]);
        let mut tried = 0;
        let mut likely = rests.filter(|rest| next.is_allowed(u32::from(rest[0]))).take_while(|rest| {
            let goes_on = tried < RESTS;
            tried += rest.len();
            goes_on
        });
        if let Some(rest) = likely.find(|rest| completes(&mut parser, rest)) {
            return Some([&added, rest].concat());
        }
        let extensions = extensions_of(&mut parser, limit - added.len(), &states, effort);
        let before = Rc::new(parser);
        for (at, (more, state)) in extensions.into_iter().enumerate() {
            let added = [&added[..], &more].concat();
            if added.len() <= limit {
                created += 1;
                let discrepancies = discrepancies + at;
                let order = Reverse((discrepancies * limit / 2 + added.len(), created));
                let states = states.iter().copied().chain(state).collect();
                let (more, before) = (more.len(), Rc::clone(&before));
                queue.push(Candidate { order, discrepancies, added, states, more, before });
            }
        }
    }
    None
}

/// Returns at most `left` bytes that end the text, or the lexeme that it is in and begin the next, likely closing ones first, with
/// the state of the lexer after them. Those that lead to one of `states`, such as another item of a list, come later.
fn extensions_of(
    parser: &mut TokenParser,
    left: usize,
    states: &[StateID],
    effort: Effort,
) -> Vec<(Vec<u8>, Option<StateID>)> {
    let forced = parser.parser.currently_forced_bytes().to_vec();
    let left = left.saturating_sub(forced.len());
    let mut found = LexemeEnds::default();
    if !effort.is_thorough {
        found = parser.parser.with_recognizer(|lexer| lexeme_ends(lexer, left, &PLAIN, effort));
    }
    if found.ends.is_empty() && found.nexts.is_empty() {
        found = parser.parser.with_recognizer(|lexer| lexeme_ends(lexer, left, &ALL, effort));
    }
    let LexemeEnds { ends, mut nexts } = found;
    let after_forced = |bytes: Vec<u8>| [&forced[..], &bytes].concat();
    let nothing_more = (!forced.is_empty()).then(Vec::new);
    let end = nothing_more.into_iter().chain(ends).map(after_forced).find(|end| completes(parser, end));
    nexts.sort_by_key(|next| {
        let white_space = next.bytes.first().is_some_and(u8::is_ascii_whitespace);
        let last = next.bytes.last().copied().map_or(0, rank);
        let has_been = states.contains(&next.state);
        (next.is_alike, white_space, has_been, opens(&next.bytes), next.bytes.len(), last)
    });
    let nexts = nexts.into_iter().map(|next| (after_forced(next.bytes), Some(next.state)));
    end.into_iter().map(|end| (end, None)).chain(nexts).collect()
}

/// Short ways to the end of a lexeme.
#[derive(Default)]
struct LexemeEnds {
    /// Bytes after which the lexeme may be complete.
    ends: Vec<Vec<u8>>,
    /// Bytes that complete it, and the first of the next lexeme unless it is complete without.
    nexts: Vec<Next>,
}

struct Next {
    bytes: Vec<u8>,
    /// State of the lexer after them.
    state: StateID,
    /// True if shorter bytes leave the lexer alike.
    is_alike: bool,
}

/// Searches the ends, of at most `left` bytes of `alphabet`, of the lexeme that the parser is in, breadth first over the states
/// of the lexer: within a lexeme, texts with the same state go on alike.
fn lexeme_ends(lexer: &mut ParserRecognizer<'_>, left: usize, alphabet: &[u8], effort: Effort) -> LexemeEnds {
    let rows = |lexer: &mut ParserRecognizer<'_>| {
        let stats = lexer.stats_mut();
        stats.rows + stats.cached_rows
    };
    let mut found = LexemeEnds::default();
    let mut seen = HashSet::from([lexer.lexer_state()]);
    let mut ends: HashMap<Rc<[usize]>, usize> = HashMap::new();
    let mut nexts: HashMap<_, Vec<usize>> = HashMap::new();
    let mut queue = VecDeque::from([Vec::new()]);
    let mut present: Vec<u8> = Vec::new();
    lexer.trie_started("endings");
    while let Some(bytes) = queue.pop_front() {
        if effort.is_spent() {
            break;
        }
        let shared = present.iter().zip(&bytes).take_while(|(one, other)| one == other).count();
        lexer.pop_bytes(present.len() - shared);
        if !bytes[shared..].iter().all(|byte| lexer.try_push_byte(*byte)) {
            break;
        }
        let before_byte = lexer.lexer_state();
        let mut possible: Option<Rc<[usize]>> = None;
        let mut possible_lexemes = |lexer: &ParserRecognizer<'_>| {
            let lexemes =
                || lexer.lexer().possible_lexemes(before_byte).iter().map(|one| one.as_usize()).collect();
            Rc::clone(possible.get_or_insert_with(lexemes))
        };
        if !bytes.is_empty() && !lexer.lexer_mut().try_lexeme_end(before_byte).is_error() {
            let alike = ends.entry(possible_lexemes(lexer)).or_default();
            if *alike < ALIKE {
                *alike += 1;
                found.ends.push(bytes.clone());
            }
        }
        if bytes.len() >= left {
            present = bytes;
            continue;
        }
        for byte in alphabet.iter().copied() {
            let before = rows(lexer);
            if !lexer.try_push_byte(byte) {
                continue;
            }
            let state = lexer.lexer_state();
            let ends_lexeme = rows(lexer) != before;
            lexer.pop_bytes(1);
            let more = || [&bytes[..], &[byte]].concat();
            if ends_lexeme {
                let more = more();
                let alike = nexts.entry((state, possible_lexemes(lexer))).or_default();
                if alike.len() < ALIKE {
                    alike.push(more.len());
                    let is_alike = alike.first().is_some_and(|shortest| *shortest < more.len());
                    found.nexts.push(Next { bytes: more, state, is_alike });
                }
            } else if seen.len() < STATES && seen.insert(state) {
                queue.push_back(more());
            }
        }
        present = bytes;
    }
    lexer.trie_finished();
    found
}

/// All bytes that texts have, common ones first.
static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let common = (b'a'..=b'z').chain(b'0'..=b'9').chain(b'A'..=b'Z');
    let rest = (0..=0xF7).filter(|byte: &u8| !byte.is_ascii_alphanumeric() && byte.is_ascii_graphic());
    let others = (0..=0xF7).filter(|byte: &u8| !byte.is_ascii_graphic());
    common.chain(rest).chain(others).collect()
});

/// White space and the graphic characters of ASCII but the one that begins escapes, common ones first.
static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let is_plain = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_graphic() && *byte != b'\\';
    ALL.iter().copied().filter(is_plain).collect()
});

/// Returns true if more brackets are opened than closed.
fn opens(bytes: &[u8]) -> bool {
    let count = |brackets: &[u8]| bytes.iter().filter(|byte| brackets.contains(byte)).count();
    count(b"([{") > count(b")]}")
}

/// Returns the place of a byte among those that may end a lexeme or begin the next: closing ones come first.
fn rank(byte: u8) -> u8 {
    match byte {
        b']' | b'}' | b')' | b'>' => 0,
        b'"' | b'\'' | b'`' => 1,
        b';' => 2,
        b',' | b'.' | b':' | b'=' | b'-' => 3,
        b'[' | b'{' | b'(' | b'<' => 5,
        _ if byte.is_ascii_whitespace() => 6,
        _ => 4,
    }
}

/// A text that the search may extend. Ordered by what is extended first.
struct Candidate {
    order: Reverse<(usize, usize)>,
    discrepancies: usize,
    added: Vec<u8>,
    /// States of the lexer where lexemes of `added` ended.
    states: Vec<StateID>,
    /// Number of the last bytes of `added` that `before` hasn't consumed.
    more: usize,
    before: Rc<TokenParser>,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

/// Returns true if `rest` completes the text.
fn completes(parser: &mut TokenParser, rest: &[u8]) -> bool {
    let tokens: Vec<u32> = rest.iter().map(|byte| u32::from(*byte)).chain([BYTES_END]).collect();
    parser.validate_tokens_raw(&tokens).is_ok_and(|count| count == tokens.len())
}

/// Advances a parser over single bytes. Returns false if they don't fit.
fn consume(parser: &mut TokenParser, bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| parser.consume_token(u32::from(*byte)).is_ok())
}
