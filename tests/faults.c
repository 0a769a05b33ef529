/* Lets one call of the C library fail on demand; loaded before it (LD_PRELOAD).

   faults_arm(call, at, error, all) makes call number `at` (from 1) of a kind fail with errno
   `error`, and all later ones too if `all`; error 0 makes a read or write a short one. Of
   allocations only those of `least` bytes count.
   faults_seen() disarms and returns how many calls there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { NONE, OPEN, READ, WRITE, FSYNC, RENAME, MMAP, MALLOC };

static volatile int armed = NONE, all_later, error_number;
static volatile long at, seen;
static volatile size_t least;

void faults_arm(int call, long number, int error, int all, size_t bytes) {
    at = number, error_number = error, all_later = all, least = bytes, seen = 0, armed = call;
}

long faults_seen(void) {
    armed = NONE;
    return seen;
}

static int fails(int call) {
    if (armed != call) return 0;
    seen++;
    if (seen != at && !(all_later && seen > at)) return 0;
    if (error_number) errno = error_number;
    return 1;
}

#define NEXT(result, name, ...) \
    static result (*next)(__VA_ARGS__); \
    if (!next) next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(int, name, const char *, int, ...) \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return fails(OPEN) ? -1 : next(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

ssize_t read(int file, void *data, size_t size) {
    NEXT(ssize_t, read, int, void *, size_t)
    if (!fails(READ)) return next(file, data, size);
    return error_number ? -1 : next(file, data, (size + 1) / 2);
}

ssize_t write(int file, const void *data, size_t size) {
    NEXT(ssize_t, write, int, const void *, size_t)
    if (!fails(WRITE)) return next(file, data, size);
    return error_number ? -1 : next(file, data, (size + 1) / 2);
}

int fsync(int file) {
    NEXT(int, fsync, int)
    return fails(FSYNC) ? -1 : next(file);
}

int rename(const char *from, const char *to) {
    NEXT(int, rename, const char *, const char *)
    return fails(RENAME) ? -1 : next(from, to);
}

#define MAPS(name, offset_t) \
    void *name(void *address, size_t size, int how, int flags, int file, offset_t offset) { \
        NEXT(void *, name, void *, size_t, int, int, int, offset_t) \
        return fails(MMAP) ? MAP_FAILED : next(address, size, how, flags, file, offset); \
    }
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static int lacks(size_t size) { return size >= least && fails(MALLOC); }

void *malloc(size_t size) { return lacks(size) ? NULL : __libc_malloc(size); }

void *calloc(size_t n, size_t size) { return lacks(n * size) ? NULL : __libc_calloc(n, size); }

void *realloc(void *old, size_t size) { return lacks(size) ? NULL : __libc_realloc(old, size); }
