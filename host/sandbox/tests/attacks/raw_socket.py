# Opens a raw socket.
# docker: error
# wasm: error
import socket
socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
print("THROUGH")
