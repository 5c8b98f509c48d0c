/* Simulates a disk that takes MICROSECONDS for each sync; loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static int slowly(const char *name, int fd) {
    int (*sync_it)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    usleep(MICROSECONDS);
    return sync_it(fd);
}

int fsync(int fd) { return slowly("fsync", fd); }
int fdatasync(int fd) { return slowly("fdatasync", fd); }
