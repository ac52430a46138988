//! Episodes: the turn graph interpreter, flat and tree sampling.
