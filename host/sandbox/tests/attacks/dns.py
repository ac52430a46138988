# Asks a name server, which could carry any data out.
# docker: error
# wasm: error
# control: services
import socket
servers = ["127.0.0.11"]
servers += [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver ")]
question = b"\x12\x34\x01\x00\x00\x01" + bytes(6) + b"\x06secret\x07example\x03com\x00\x00\x01\x00\x01"
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.settimeout(1)
for server in servers:
    link.connect((server, 53))
    link.send(question)
    print("THROUGH" if link.recv(512)[:2] == question[:2] else "no")
