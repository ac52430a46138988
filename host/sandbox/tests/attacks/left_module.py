# Leaves a module that the next job would import by itself.
# docker: ok
# wasm: ok error
import builtins, os, sys
builtins.left = True
for place in [".", "/tmp"] + sys.path:
    try:
        open(os.path.join(place, "sitecustomize.py"), "w").write("import builtins; builtins.left = True")
    except OSError:
        pass
# --- next job ---
import builtins
print("THROUGH" if hasattr(builtins, "left") else "no")
