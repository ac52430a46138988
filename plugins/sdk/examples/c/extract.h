/* Which part of a text is its answer: the maths grader's rules.
 *
 * In this order: what is boxed, what stands behind `####`, what is announced as the answer, a text that is nothing but an
 * answer, the last formula or number, a few words. The grader reads formulas in full to tell whether a text is one; here
 * `reads_as_answer` looks at their words, signs and brackets alone. */
#ifndef EXTRACT_H
#define EXTRACT_H

#include "pl_sdk.h"

/* A part of a text, not zero-terminated; `ptr` is null where there is none. */
typedef pl_text slice;

/* The answer that `text` gives; `ptr` is null where it gives none. */
slice extract_answer(slice text);

#endif
