# Creates more files than the limit.
# docker: error
# wasm: error timeout memory
for number in range(50_000):
    open(f"/tmp/file-{number}", "w").close()
print("THROUGH")
