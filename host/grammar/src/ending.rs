//! The search for a short ending of a text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use llguidance::Matcher;
use pl_types::Grammar;

use crate::vocabulary::BYTES_END;

/// Longest ending that is searched for, in bytes.
pub(crate) const LIMIT: usize = 2048;

/// Lengths that are tried one after another: short endings are found without a detour to long ones.
const LENGTHS: [usize; 4] = [16, 64, 256, LIMIT];

/// Number of bytes that may come next above which a text is free, such as the content of a string.
const FREE: usize = 64;

/// The search for endings of the texts of one grammar.
pub(crate) struct EndingSearch {
    /// The grammar over single bytes, before any.
    start: Matcher,
    /// Words that the grammar spells out. They are tried as a whole, because their first letters may look like those of
    /// any name.
    words: Vec<Vec<u8>>,
}

impl EndingSearch {
    pub(crate) fn new(start: Matcher, grammar: &Grammar) -> Self {
        let words = match grammar {
            Grammar::Lark(text) => quoted(text),
            // The next key or value is the only one that fits.
            Grammar::JsonSchema(_) => Vec::new(),
        };
        Self { start, words }
    }

    /// Searches a short text of the grammar.
    pub(crate) fn shortest_text(&self) -> Option<Vec<u8>> {
        self.find(&self.start, &[], 0, 2000)
    }

    /// Searches a short ending of `text`. `earlier` is an ending of it without its last `since` bytes: most tokens go on
    /// within what that ending closes.
    pub(crate) fn ending(&self, text: &[u8], earlier: &[u8], since: usize) -> Option<Vec<u8>> {
        let mut matcher = self.start.clone();
        consume(&mut matcher, text).then(|| self.find(&matcher, earlier, since, 200))?
    }

    fn find(&self, matcher: &Matcher, earlier: &[u8], since: usize, extensions: usize) -> Option<Vec<u8>> {
        LENGTHS.iter().find_map(|limit| self.search(matcher, earlier, since, *limit, extensions))
    }

    /// A limited-discrepancy search (Harvey and Ginsberg 1995): the likely closing bytes come first, and texts that leave
    /// that order least are extended first, short ones before long ones. Returns `None` if there is no ending of at most
    /// `limit` bytes, or if `extensions` texts were extended before one was found.
    fn search(
        &self,
        start: &Matcher,
        earlier: &[u8],
        since: usize,
        limit: usize,
        extensions: usize,
    ) -> Option<Vec<u8>> {
        let mut queue = BinaryHeap::new();
        let mut created = 0;
        queue.push(Candidate {
            order: Reverse((0, 0)),
            discrepancies: 0,
            added: Vec::new(),
            matcher: start.clone(),
        });
        for _ in 0..extensions {
            let Candidate { discrepancies, added, mut matcher, .. } = queue.pop()?;
            if matcher.is_accepting().unwrap_or(false) {
                return Some(added);
            }
            let rests = (0..=since.min(earlier.len())).map(|from| &earlier[from..]);
            if let Some(rest) =
                rests.filter(|rest| !rest.is_empty()).find(|rest| completes(&mut matcher, rest))
            {
                return Some([&added, rest].concat());
            }
            for (at, more) in self.extensions(&mut matcher).into_iter().enumerate() {
                let mut matcher = matcher.clone();
                let added = [&added[..], &more].concat();
                if added.len() <= limit && consume(&mut matcher, &more) {
                    created += 1;
                    let discrepancies = discrepancies + at;
                    let order = Reverse((discrepancies * limit / 2 + added.len(), created));
                    queue.push(Candidate { order, discrepancies, added, matcher });
                }
            }
        }
        None
    }

    /// Returns bytes and words that may come next, likely closing ones first. Of many letters that look alike, one.
    fn extensions(&self, matcher: &mut Matcher) -> Vec<Vec<u8>> {
        let Ok(mask) = matcher.compute_mask() else { return Vec::new() };
        let mut allowed: Vec<u8> = (0..=255).filter(|byte| mask.is_allowed(u32::from(*byte))).collect();
        let letters = allowed.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
        // Few are the beginnings of words, many the content of names and numbers, which needn't go on.
        let letter = if letters > 8 { 7 } else { 3 };
        let rank = |byte: u8| match byte {
            b'"' | b'\'' | b'`' => 0,
            b']' | b'}' | b')' | b'>' => 1,
            b';' => 2,
            _ if byte.is_ascii_alphanumeric() => letter,
            b',' | b'.' | b':' | b'=' | b'-' => 4,
            b'[' | b'{' | b'(' | b'<' => 5,
            b'\n' | b' ' => 6,
            _ => 8,
        };
        allowed.sort_by_key(|byte| (rank(*byte), *byte));
        if allowed.len() > FREE {
            return exits(matcher, &allowed);
        }
        allowed.dedup_by(|next, kept| rank(*next) == rank(*kept) && rank(*next) >= 7);
        let bytes = allowed.iter().map(|byte| vec![*byte]);
        let long = self.words.iter().filter(|word| word.len() > 1);
        let fits =
            |word: &&Vec<u8>| mask.is_allowed(u32::from(word[0])) && valid(matcher, word) == word.len();
        let mut all: Vec<Vec<u8>> = long.filter(fits).cloned().collect();
        all.extend(bytes);
        all
    }
}

/// Returns the bytes of a free text, such as the content of a string, that lead elsewhere, and one that stays in it.
fn exits(matcher: &Matcher, allowed: &[u8]) -> Vec<Vec<u8>> {
    // Bytes by what may follow them: after most it is more of the content.
    let mut alike: Vec<(Vec<u32>, Vec<u8>)> = Vec::new();
    let mut letters = 0;
    for byte in allowed.iter().filter(|byte| byte.is_ascii()) {
        letters += usize::from(byte.is_ascii_alphanumeric());
        if byte.is_ascii_alphanumeric() && letters > 3 {
            continue;
        }
        let mut next = matcher.clone();
        let Ok(()) = next.consume_token(u32::from(*byte)) else { continue };
        let Ok(mask) = next.compute_mask_or_eos() else { continue };
        match alike.iter_mut().find(|(follow, _)| follow == mask.as_slice()) {
            Some((_, bytes)) => bytes.push(*byte),
            None => alike.push((mask.as_slice().to_vec(), vec![*byte])),
        }
    }
    let content = (0..alike.len()).max_by_key(|at| alike[*at].1.len());
    let (mut exits, mut inside) = (Vec::new(), Vec::new());
    for (at, (_, bytes)) in alike.into_iter().enumerate() {
        match content {
            Some(content) if content == at => inside.extend(bytes.first().map(|byte| vec![*byte])),
            _ => exits.extend(bytes.into_iter().map(|byte| vec![byte])),
        }
    }
    exits.append(&mut inside);
    exits
}

/// A text that the search may extend. Ordered by what is extended first.
struct Candidate {
    order: Reverse<(usize, usize)>,
    discrepancies: usize,
    added: Vec<u8>,
    matcher: Matcher,
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

/// Returns the number of leading bytes that may come next.
fn valid(matcher: &mut Matcher, bytes: &[u8]) -> usize {
    let tokens: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
    matcher.validate_tokens(&tokens).unwrap_or(0)
}

/// Returns true if `rest` completes the text.
fn completes(matcher: &mut Matcher, rest: &[u8]) -> bool {
    let tokens: Vec<u32> = rest.iter().map(|byte| u32::from(*byte)).chain([BYTES_END]).collect();
    matcher.validate_tokens(&tokens).is_ok_and(|count| count == tokens.len())
}

/// Advances a matcher over single bytes. Returns false if they don't fit.
fn consume(matcher: &mut Matcher, bytes: &[u8]) -> bool {
    let tokens: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
    matcher.consume_tokens(&tokens).is_ok()
}

/// Returns the texts in double quotes of a grammar, without repetitions, in their order.
fn quoted(grammar: &str) -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for line in grammar.lines() {
        let mut rest = line;
        while let Some(start) = rest.find('"') {
            let mut literals = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<String>();
            let Some(Ok(text)) = literals.next() else {
                // A quote of a regular expression or a comment.
                rest = &rest[start + 1..];
                continue;
            };
            rest = &rest[start + literals.byte_offset()..];
            if !text.is_empty() && !texts.iter().any(|known| known == text.as_bytes()) {
                texts.push(text.into_bytes());
            }
        }
    }
    texts
}
