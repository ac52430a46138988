/* A disk that fails below a folder, for a program that is started with this library in LD_PRELOAD. Rust writes files by
 * write and writev of the C library, and changes the entries of folders by the other functions here, by absolute paths or
 * by names in an open folder.
 *
 * FAILING_DISK_FOLDER  the folder, without links
 * FAILING_DISK_LOG     file that gets a line for each change below the folder: its kind, the bytes of a write or 0, `done`
 *                      or `failed`, and the path
 * FAILING_DISK_SPACE   bytes that have room: the write that reaches the end is a short one, and all later ones get ENOSPC
 * FAILING_DISK_KIND    kind of the change that gets EIO: `write`, `create` (open64 with O_CREAT), `mkdir`, `symlink`
 *                      or `remove` (unlink and unlinkat, also of a folder)
 * FAILING_DISK_NUMBER  its number among those of its kind, from 1 on
 */
#define _GNU_SOURCE
/* With it, headers define an open64 of their own. */
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folder;
static int report = -1;
static unsigned long long space = ULLONG_MAX;
static const char *failing_kind;
static unsigned long long failing_number;
static atomic_ullong counted;
static atomic_ullong used;

__attribute__((constructor)) static void read_settings(void)
{
    const char *text;
    folder = getenv("FAILING_DISK_FOLDER");
    if ((text = getenv("FAILING_DISK_LOG")) != NULL)
        report = open(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if ((text = getenv("FAILING_DISK_SPACE")) != NULL)
        space = strtoull(text, NULL, 10);
    if ((text = getenv("FAILING_DISK_NUMBER")) != NULL)
        failing_number = strtoull(text, NULL, 10);
    failing_kind = getenv("FAILING_DISK_KIND");
}

/* Returns 1 if a path is below the folder. */
static int is_below(const char *path)
{
    size_t own = folder == NULL ? 0 : strlen(folder);
    return own > 0 && strncmp(path, folder, own) == 0 && path[own] == '/';
}

/* Returns 1 and the path of an open file or folder, and 0 for a descriptor that has none. */
static int find_path(int fd, char path[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return 1;
}

/* Writes a change into the log. Returns its error, or 0 if it may be made. */
static int record(const char *kind, size_t bytes, int error, const char *path)
{
    int is_counted = failing_kind != NULL && strcmp(kind, failing_kind) == 0;
    if (is_counted && atomic_fetch_add(&counted, 1) + 1 == failing_number)
        error = EIO;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s %zu %s %s\n", kind, bytes, error ? "failed" : "done", path);
    syscall(SYS_write, report, line, (size_t)length);
    return error;
}

/* Returns the number of bytes of a write that have room. Returns -1 with errno if the write fails. */
static ssize_t admit(int fd, size_t bytes)
{
    char path[PATH_MAX];
    if (bytes == 0 || !find_path(fd, path) || !is_below(path))
        return (ssize_t)bytes;
    unsigned long long before = atomic_fetch_add(&used, bytes);
    int error = record("write", bytes, before >= space ? ENOSPC : 0, path);
    if (error) {
        errno = error;
        return -1;
    }
    return (ssize_t)(space - before < bytes ? space - before : bytes);
}

/* Returns 1 if an entry may be changed, by its absolute path or its name in an open folder. Returns 0 with errno if the
 * change fails. */
static int may_change(const char *kind, int parent, const char *name)
{
    char start[PATH_MAX], path[PATH_MAX];
    if (name[0] == '/')
        snprintf(path, sizeof path, "%s", name);
    else if (find_path(parent, start))
        snprintf(path, sizeof path, "%s/%s", start, name);
    else
        return 1;
    int error = is_below(path) ? record(kind, 0, 0, path) : 0;
    if (error)
        errno = error;
    return error == 0;
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

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if ((flags & O_CREAT) && !may_change("create", AT_FDCWD, path))
        return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return may_change("mkdir", AT_FDCWD, path) ? (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode) : -1;
}

int symlink(const char *target, const char *path)
{
    return may_change("symlink", AT_FDCWD, path) ? (int)syscall(SYS_symlinkat, target, AT_FDCWD, path) : -1;
}

int unlinkat(int parent, const char *name, int flags)
{
    return may_change("remove", parent, name) ? (int)syscall(SYS_unlinkat, parent, name, flags) : -1;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}
