# Connects to a service of the machine at the address of a container's gateway.
# docker: error
# wasm: error
# control: services
import socket, struct
gateways = ["172.17.0.1"]
for line in open("/proc/net/route").readlines()[1:]:
    fields = line.split()
    if fields[1] == "00000000":
        gateways.append(socket.inet_ntoa(struct.pack("<L", int(fields[2], 16))))
for gateway in gateways:
    with socket.create_connection((gateway, 2375), 2) as link:
        link.sendall(b"GET /version HTTP/1.0\r\n\r\n")
        print("THROUGH" if link.recv(100).startswith(b"HTTP/") else "no")
