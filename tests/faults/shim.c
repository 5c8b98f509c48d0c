/* Records a process's calls for files below a folder, for its sockets and for threads, and makes one of them fail.
 *
 * Loaded with LD_PRELOAD; it also gets SQLite's calls. Nothing is recorded until `faults_begin` is called.
 * Environment variables at that time:
 *   FAULTS_ROOT    the folder (without a final slash); calls for other files are ignored
 *   FAULTS_LOG     a file to which each call adds a line: its name, a space, the path; "!" before the one that fails
 *   FAULTS_AT      "CALL KIND NUMBER PATTERN": the NUMBERth CALL whose path (below FAULTS_ROOT) matches the glob PATTERN;
 *                  KIND is an errno's number, or "kill", "killed-after", "short"; with a final "+" later calls as well
 *   FAULTS_SYNCED  a folder with the last synced content of each file and names of each folder, by inode; a link beside
 *                  each prevents the inode's reuse
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum outcome { PASS, FAIL, SHORT, KILL_AFTER };

static const char *root, *synced;
static int log_fd = -1, wanted_number, error, from_then_on;
static enum outcome kind;
static int kills;
static char wanted_call[32], pattern[PATH_MAX];
static atomic_int seen;

static const char *copied(const char *text) { return text ? strdup(text) : NULL; }

/* Start to record, with the current environment variables; called after the fork from a process without them. */
void faults_begin(void) {
    char word[32];
    const char *at = getenv("FAULTS_AT"), *log = getenv("FAULTS_LOG");
    root = copied(getenv("FAULTS_ROOT")); /* the environment can change while threads read this */
    synced = copied(getenv("FAULTS_SYNCED"));
    if (log) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (at && sscanf(at, "%31s %31s %d %4095s", wanted_call, word, &wanted_number, pattern) == 4) {
        size_t length = strlen(word);
        from_then_on = word[length - 1] == '+';
        if (from_then_on) word[length - 1] = 0;
        error = atoi(word);
        kills = !strcmp(word, "kill");
        kind = !strcmp(word, "short") ? SHORT : !strcmp(word, "killed-after") ? KILL_AFTER : FAIL;
    }
}

/* Return the outcome of a call, or kill the process. */
static enum outcome decide(const char *call, const char *path) {
    size_t length = root ? strlen(root) : 0;
    if (!root || strncmp(path, root, length) || path[length] != '/') return PASS;
    int hit = 0;
    if (wanted_number && !strcmp(call, wanted_call) && !fnmatch(pattern, path + length + 1, FNM_PATHNAME)) {
        int number = atomic_fetch_add(&seen, 1) + 1;
        hit = number == wanted_number || (from_then_on && number > wanted_number);
    }
    if (log_fd >= 0) {
        char line[PATH_MAX + 64];
        int size = snprintf(line, sizeof line, "%s%s %s\n", hit ? "!" : "", call, path + length + 1);
        syscall(SYS_write, log_fd, line, (size_t)size);
    }
    if (!hit) return PASS;
    if (kills) kill(getpid(), SIGKILL);
    if (kind == FAIL) errno = error;
    return kind;
}

static const char *of_descriptor(int fd, char *buffer) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, buffer, PATH_MAX - 1);
    buffer[size < 0 ? 0 : size] = 0;
    return buffer;
}

static const char *absolute(int folder, const char *path, char *buffer) {
    if (path[0] == '/') return path;
    char start[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (!getcwd(start, sizeof start)) start[0] = 0;
    } else of_descriptor(folder, start);
    snprintf(buffer, PATH_MAX, "%.2047s/%.2047s", start, path);
    return buffer;
}

/* A socket pair within the process, which wakes an event loop: no real fault makes its sends fail. */
static int is_own_pair(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.pid == getpid();
}

/* A call without a path is recorded with a name below the folder. */
static const char *named(const char *name, char *buffer) {
    snprintf(buffer, PATH_MAX, "%s/%s", root ? root : "", name);
    return buffer;
}

static const char *family(int number) {
    return number == AF_UNIX ? "unix" : number == AF_NETLINK ? "netlink" : "inet";
}

static const char *bound_to(int fd, char *buffer) {
    struct sockaddr_un address;
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    buffer[0] = 0;
    if (getsockname(fd, (struct sockaddr *)&address, &size)) return buffer;
    if (address.sun_family != AF_UNIX || !address.sun_path[0]) return named(family(address.sun_family), buffer);
    snprintf(buffer, PATH_MAX, "%s", address.sun_path);
    return buffer;
}

static const char *of_socket(int fd, char *buffer) {
    buffer[0] = 0;
    return is_own_pair(fd) ? buffer : bound_to(fd, buffer);
}

static const char *path_in(const struct sockaddr *address) {
    return address->sa_family == AF_UNIX ? ((const struct sockaddr_un *)address)->sun_path : "";
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Store the content of a file or folder as synced, for a later power cut. */
static void keep(int fd) {
    char path[PATH_MAX], target[PATH_MAX], buffer[65536];
    struct stat status;
    if (!synced || fstat(fd, &status)) return;
    of_descriptor(fd, path);
    if (!root || strncmp(path, root, strlen(root))) return;
    snprintf(target, sizeof target, "%s/%lu.new", synced, status.st_ino);
    int out = syscall(SYS_openat, AT_FDCWD, target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (S_ISDIR(status.st_mode)) {
        DIR *folder = REAL(opendir)(path);
        struct dirent *entry;
        while (folder && (entry = REAL(readdir)(folder))) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            int size = snprintf(buffer, sizeof buffer, "%lu %s\n", entry->d_ino, entry->d_name);
            syscall(SYS_write, out, buffer, (size_t)size);
        }
        if (folder) closedir(folder);
    } else {
        off_t offset = 0;
        ssize_t size;
        int in = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        while ((size = syscall(SYS_pread64, in, buffer, sizeof buffer, offset)) > 0) {
            syscall(SYS_write, out, buffer, (size_t)size);
            offset += size;
        }
        syscall(SYS_close, in);
        char link[PATH_MAX];
        snprintf(link, sizeof link, "%s/%lu.link", synced, status.st_ino);
        syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, link, 0);
    }
    syscall(SYS_close, out);
    char final[PATH_MAX];
    snprintf(final, sizeof final, "%s/%lu", synced, status.st_ino);
    syscall(SYS_renameat2, AT_FDCWD, target, AT_FDCWD, final, 0);
}

#define GUARDED(call, path, fail, action) \
    enum outcome outcome = decide(call, path); \
    if (outcome == FAIL) return fail; \
    __typeof__(action) result = action; \
    if (outcome == KILL_AFTER) kill(getpid(), SIGKILL); \
    return result

static int changes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)); }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        char buffer[PATH_MAX]; \
        GUARDED(changes(flags) ? "open" : "read", absolute(AT_FDCWD, path, buffer), -1, REAL(name)(path, flags, mode)); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        char buffer[PATH_MAX]; \
        GUARDED(changes(flags) ? "open" : "read", absolute(folder, path, buffer), -1, REAL(name)(folder, path, flags, mode)); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    char buffer[PATH_MAX];
    enum outcome outcome = decide("write", of_descriptor(fd, buffer));
    if (outcome == FAIL) return -1;
    ssize_t result = REAL(write)(fd, data, outcome == SHORT || outcome == KILL_AFTER ? (size + 1) / 2 : size);
    if (outcome == KILL_AFTER) kill(getpid(), SIGKILL);
    return result;
}

#define PWRITE(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) { \
        char buffer[PATH_MAX]; \
        enum outcome outcome = decide("write", of_descriptor(fd, buffer)); \
        if (outcome == FAIL) return -1; \
        ssize_t result = REAL(name)(fd, data, outcome == SHORT || outcome == KILL_AFTER ? (size + 1) / 2 : size, offset); \
        if (outcome == KILL_AFTER) kill(getpid(), SIGKILL); \
        return result; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define SYNC(name) \
    int name(int fd) { \
        char buffer[PATH_MAX]; \
        enum outcome outcome = decide("sync", of_descriptor(fd, buffer)); \
        if (outcome == FAIL) return -1; \
        keep(fd); /* no real sync: it can be slow in a container, and the power cut is simulated */ \
        if (outcome == KILL_AFTER) kill(getpid(), SIGKILL); \
        return 0; \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name, size_type) \
    int name(int fd, size_type size) { \
        char buffer[PATH_MAX]; \
        GUARDED("truncate", of_descriptor(fd, buffer), -1, REAL(name)(fd, size)); \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define ALLOCATE(name, offset_type) /* returns the error number */ \
    int name(int fd, offset_type offset, offset_type size) { \
        char buffer[PATH_MAX]; \
        GUARDED("allocate", of_descriptor(fd, buffer), error, REAL(name)(fd, offset, size)); \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

int rename(const char *from, const char *to) {
    char buffer[PATH_MAX];
    GUARDED("rename", absolute(AT_FDCWD, to, buffer), -1, REAL(rename)(from, to));
}
int unlink(const char *path) {
    char buffer[PATH_MAX];
    GUARDED("unlink", absolute(AT_FDCWD, path, buffer), -1, REAL(unlink)(path));
}
int unlinkat(int folder, const char *path, int flags) {
    char buffer[PATH_MAX];
    GUARDED("unlink", absolute(folder, path, buffer), -1, REAL(unlinkat)(folder, path, flags));
}
int rmdir(const char *path) {
    char buffer[PATH_MAX];
    GUARDED("unlink", absolute(AT_FDCWD, path, buffer), -1, REAL(rmdir)(path));
}
int mkdir(const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    GUARDED("mkdir", absolute(AT_FDCWD, path, buffer), -1, REAL(mkdir)(path, mode));
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char buffer[PATH_MAX];
    GUARDED("link", absolute(to_folder, to, buffer), -1, REAL(linkat)(from_folder, from, to_folder, to, flags));
}
int link(const char *from, const char *to) {
    char buffer[PATH_MAX];
    GUARDED("link", absolute(AT_FDCWD, to, buffer), -1, REAL(link)(from, to));
}
int chmod(const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    GUARDED("chmod", absolute(AT_FDCWD, path, buffer), -1, REAL(chmod)(path, mode));
}
#define STAT(name, status_type) \
    int name(const char *path, struct status_type *found) { \
        char buffer[PATH_MAX]; \
        GUARDED("stat", absolute(AT_FDCWD, path, buffer), -1, REAL(name)(path, found)); \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
STAT(statvfs, statvfs)
STAT(statvfs64, statvfs64)

#define STATAT(name, status_type) \
    int name(int folder, const char *path, struct status_type *found, int flags) { \
        char buffer[PATH_MAX]; \
        GUARDED("stat", absolute(folder, path, buffer), -1, REAL(name)(folder, path, found, flags)); \
    }
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)

DIR *opendir(const char *path) {
    char buffer[PATH_MAX];
    GUARDED("list", absolute(AT_FDCWD, path, buffer), NULL, REAL(opendir)(path));
}
#define READDIR(name, entry_type) \
    struct entry_type *name(DIR *folder) { \
        char buffer[PATH_MAX]; \
        GUARDED("entry", of_descriptor(dirfd(folder), buffer), NULL, REAL(name)(folder)); \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

int flock(int fd, int operation) {
    char buffer[PATH_MAX];
    GUARDED("lock", of_descriptor(fd, buffer), -1, REAL(flock)(fd, operation));
}
#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        va_list more; va_start(more, command); void *argument = va_arg(more, void *); va_end(more); \
        char buffer[PATH_MAX]; \
        if (command != F_SETLK && command != F_SETLKW) return REAL(name)(fd, command, argument); \
        GUARDED("lock", of_descriptor(fd, buffer), -1, REAL(name)(fd, command, argument)); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

#define MAP(name, offset_type) \
    void *name(void *start, size_t size, int protection, int flags, int fd, offset_type offset) { \
        char buffer[PATH_MAX]; \
        if (fd < 0 || !root) return REAL(name)(start, size, protection, flags, fd, offset); \
        GUARDED("map", of_descriptor(fd, buffer), MAP_FAILED, REAL(name)(start, size, protection, flags, fd, offset)); \
    }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *argument) {
    char buffer[PATH_MAX]; /* returns the error number */
    GUARDED("thread", named("thread", buffer), error, REAL(pthread_create)(thread, attributes, begin, argument));
}

int socket(int domain, int type, int protocol) {
    char buffer[PATH_MAX];
    GUARDED("socket", named(family(domain), buffer), -1, REAL(socket)(domain, type, protocol));
}
int bind(int fd, const struct sockaddr *address, socklen_t size) {
    GUARDED("bind", path_in(address), -1, REAL(bind)(fd, address, size));
}
int connect(int fd, const struct sockaddr *address, socklen_t size) {
    GUARDED("connect", path_in(address), -1, REAL(connect)(fd, address, size));
}
int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    char buffer[PATH_MAX];
    GUARDED("accept", bound_to(fd, buffer), -1, REAL(accept4)(fd, address, size, flags));
}
ssize_t recv(int fd, void *data, size_t size, int flags) {
    char buffer[PATH_MAX];
    GUARDED("receive", of_socket(fd, buffer), -1, REAL(recv)(fd, data, size, flags));
}
ssize_t send(int fd, const void *data, size_t size, int flags) {
    char buffer[PATH_MAX];
    enum outcome outcome = decide("send", of_socket(fd, buffer));
    if (outcome == FAIL) return -1;
    ssize_t result = REAL(send)(fd, data, outcome == SHORT || outcome == KILL_AFTER ? (size + 1) / 2 : size, flags);
    if (outcome == KILL_AFTER) kill(getpid(), SIGKILL);
    return result;
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    char buffer[PATH_MAX];
    GUARDED("send", of_socket(fd, buffer), -1, REAL(sendmsg)(fd, message, flags));
}
