# More files than a job may have: many names.
# docker: error
# wasm: error timeout memory
for number in range(50_000):
    open(f"/tmp/file-{number}", "w").close()
print("THROUGH")
