/* Preloaded into a process: reports a full disk (ENOSPC) as an exceeded quota (EDQUOT). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#define CALL(type, name, taken, given)               \
    type name taken {                                \
        static type(*real) taken;                    \
        if (!real) real = dlsym(RTLD_NEXT, #name);   \
        type result = real given;                    \
        if (result < 0 && errno == ENOSPC) errno = EDQUOT; \
        return result;                               \
    }
CALL(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o))
CALL(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
CALL(ssize_t, write, (int f, const void *b, size_t n), (f, b, n))
CALL(int, ftruncate64, (int f, off64_t o), (f, o))
CALL(int, ftruncate, (int f, off_t o), (f, o))
CALL(int, fsync, (int f), (f))
CALL(int, fdatasync, (int f), (f))

#define ALLOCATE(name, type)                       \
    int name(int f, type a, type b) {              \
        static int (*real)(int, type, type);       \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        int error = real(f, a, b);                 \
        return error == ENOSPC ? EDQUOT : error;   \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)
