"""Services around a machine, for the network of a control: cloud metadata, the Docker engine's address, a name server."""

import fcntl
import os
import socket
import struct
import threading

SET_ADDRESS = 0x8916  # SIOCSIFADDR


def address(number, text):
    request = struct.pack("16sH2s4s8x", b"lo:%d" % number, socket.AF_INET, b"", socket.inet_aton(text))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, SET_ADDRESS, request)


def pages(listener):
    while True:
        link, _ = listener.accept()
        link.recv(1000)
        link.sendall(b"HTTP/1.0 200 OK\r\n\r\nhere\n")
        link.close()


def names(link):
    while True:
        question, sender = link.recvfrom(512)
        link.sendto(question[:2] + b"\x81\x80" + question[4:], sender)


address(1, "169.254.169.254")
address(2, "172.17.0.1")
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("127.0.0.11", 53))
services = [
    (pages, socket.create_server(("169.254.169.254", 80))),
    (pages, socket.create_server(("172.17.0.1", 2375))),
    (names, resolver),
]
# They run when the command returns.
if os.fork() == 0:
    for serve, link in services:
        threading.Thread(target=serve, args=(link,)).start()
