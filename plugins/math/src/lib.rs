//! The maths domain: generated word problems, a tool agent, a reasoner, a grader.
