# Takes more memory than the limit.
# docker: memory
# wasm: memory
hold = [b"x" * (1 << 20) for _ in range(700)]
print("THROUGH")
