# Sends a datagram to the machine, as DNS does.
# docker: error
# wasm: error
import socket
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.settimeout(1)
link.sendto(b"x", ("127.0.0.1", PORT))
print("THROUGH" if link.recv(1) == b"x" else "no")
