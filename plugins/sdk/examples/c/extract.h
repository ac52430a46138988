/* Extracts the final answer from a text, by the maths grader's rules.
 *
 * In this order: a boxed answer, the text after `####`, an announced answer, a text that consists only of an
 * answer, the last formula or number, a few words. The grader reads formulas in full to tell whether a text is one; here
 * `reads_as_answer` checks only their words, signs and brackets. */
#ifndef EXTRACT_H
#define EXTRACT_H

#include "pl_sdk.h"

/* A part of a text, not zero-terminated; `ptr` is null if there is none. */
typedef pl_text slice;

/* The answer in `text`; `ptr` is null if it has none. */
slice extract_answer(slice text);

#endif
