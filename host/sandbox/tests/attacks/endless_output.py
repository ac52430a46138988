# Prints without end.
# docker: output limit
# wasm: output limit
for _ in range(20):
    print("x" * (1 << 20))
print("THROUGH")
