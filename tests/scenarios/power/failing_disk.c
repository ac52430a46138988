/* A disk that fails below a folder, for a program that is started with this library in LD_PRELOAD. Rust writes files by write
 * and writev of the C library.
 *
 * FAILING_DISK_FOLDER  the folder, without links
 * FAILING_DISK_LOG     file that gets a line for each write below the folder: its bytes, `written` or `failed`, and its path
 * FAILING_DISK_SPACE   bytes that have room: the write that reaches the end is a short one, and all later ones get ENOSPC
 * FAILING_DISK_WRITE   number of the write, from 1 on, that gets EIO
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folder;
static int report = -1;
static unsigned long long space = ULLONG_MAX;
static unsigned long long failing;
static atomic_ullong writes;
static atomic_ullong used;

__attribute__((constructor)) static void read_settings(void)
{
    const char *text;
    folder = getenv("FAILING_DISK_FOLDER");
    if ((text = getenv("FAILING_DISK_LOG")) != NULL)
        report = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if ((text = getenv("FAILING_DISK_SPACE")) != NULL)
        space = strtoull(text, NULL, 10);
    if ((text = getenv("FAILING_DISK_WRITE")) != NULL)
        failing = strtoull(text, NULL, 10);
}

/* Returns 1 and the path of a file below the folder, and 0 for any other descriptor. */
static int is_below(int fd, char path[PATH_MAX])
{
    char link[32];
    if (folder == NULL)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    size_t own = strlen(folder);
    return strncmp(path, folder, own) == 0 && path[own] == '/';
}

/* Returns the number of bytes of a write that have room. Returns -1 with errno if the write fails. */
static ssize_t admit(int fd, size_t bytes)
{
    char path[PATH_MAX];
    if (bytes == 0 || !is_below(fd, path))
        return (ssize_t)bytes;
    unsigned long long number = atomic_fetch_add(&writes, 1) + 1;
    unsigned long long before = atomic_fetch_add(&used, bytes);
    int error = number == failing ? EIO : before >= space ? ENOSPC : 0;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%zu %s %s\n", bytes, error ? "failed" : "written", path);
    syscall(SYS_write, report, line, (size_t)length);
    if (error) {
        errno = error;
        return -1;
    }
    return (ssize_t)(space - before < bytes ? space - before : bytes);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t room = admit(fd, bytes);
    return room < 0 ? -1 : syscall(SYS_write, fd, data, (size_t)room);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int part = 0; part < count; part++)
        bytes += parts[part].iov_len;
    ssize_t room = admit(fd, bytes);
    if (room < 0)
        return -1;
    if ((size_t)room == bytes)
        return syscall(SYS_writev, fd, parts, count);
    /* A short write of the first part that has bytes, of which all later ones are refused. */
    while (parts->iov_len == 0)
        parts++;
    return syscall(SYS_write, fd, parts->iov_base, parts->iov_len < (size_t)room ? parts->iov_len : (size_t)room);
}
