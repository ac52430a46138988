# Unpacks an archive of 50 kilobytes whose content exceeds the limit.
# docker: error memory timeout
# wasm: error memory timeout
import io, shutil, zipfile
archive = io.BytesIO()
with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
    with writer.open("bomb", "w") as member:
        for _ in range(50):
            member.write(bytes(1 << 20))
for number in range(8):
    archive.seek(0)
    zipfile.ZipFile(archive).extractall(f"/tmp/bomb-{number}")
print("THROUGH")
for number in range(8):
    shutil.rmtree(f"/tmp/bomb-{number}")
