# Connects to the machine over TCP.
# docker: error
# wasm: error
import socket
with socket.create_connection(("127.0.0.1", PORT), 2) as link:
    link.sendall(b"x")
    print("THROUGH" if link.recv(1) == b"x" else "no")
