# Reads the cloud's metadata of this machine, which contain its keys.
# docker: error
# wasm: error
# control: services
import socket
with socket.create_connection(("169.254.169.254", 80), 2) as link:
    link.sendall(b"GET /latest/meta-data/ HTTP/1.0\r\n\r\n")
    print("THROUGH" if link.recv(100).startswith(b"HTTP/") else "no")
