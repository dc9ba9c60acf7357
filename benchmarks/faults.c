// Counts the file operations below one folder and makes the n-th of them fail, or kills the process there.
// Loaded with LD_PRELOAD by benchmarks/faults.py; arm and disarm are called from Python.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[4096];
static size_t root_length;
static atomic_int armed;
static atomic_long operations;
static long fail_at, fail_until;
static int fail_code;  // an errno; 0: SIGKILL

void faults_arm(const char* folder, long at, long until, int code) {
  strncpy(root, folder, sizeof root - 1);
  root_length = strlen(root);
  operations = 0, fail_at = at, fail_until = until, fail_code = code, armed = 1;
}
long faults_disarm(void) {
  armed = 0;
  return operations;
}

// Whether this operation is the one that fails; errno is set then.
static int fails(const char* path) {
  if (!armed || strncmp(path, root, root_length) != 0) return 0;
  long now = ++operations;
  if (now < fail_at || now > fail_until) return 0;
  if (fail_code == 0) kill(getpid(), SIGKILL);
  errno = fail_code;
  return 1;
}
static int fails_in(int folder, const char* path) {
  if (!armed) return 0;
  char link[64], full[8192];
  if (path && path[0] == '/') return fails(path);
  ssize_t length = 0;
  if (folder == AT_FDCWD) {
    if (getcwd(full, 4096)) length = strlen(full);
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    length = readlink(link, full, 4096);
  }
  if (length <= 0) return 0;
  full[length] = 0;
  if (path && path[0]) strcat(strcat(full, "/"), path);
  return fails(full);
}

#define NEXT(type, name, ...)                       \
  static type (*next)(__VA_ARGS__);                 \
  if (!next) next = dlsym(RTLD_NEXT, name)
#define ON_PATH(type, name, failed, arguments, ...) \
  type name arguments {                             \
    NEXT(type, #name, __VA_ARGS__);                 \
    if (fails_in(AT_FDCWD, a)) return failed;
#define END(...) return next(__VA_ARGS__); }

#define OPEN(name)                                     \
  int name(const char* a, int flags, ...) {            \
    NEXT(int, #name, const char*, int, ...);           \
    va_list rest; va_start(rest, flags);               \
    mode_t mode = va_arg(rest, mode_t); va_end(rest);  \
    return fails_in(AT_FDCWD, a) ? -1 : next(a, flags, mode); }
OPEN(open) OPEN(open64)
#define OPENAT(name)                                       \
  int name(int at, const char* a, int flags, ...) {        \
    NEXT(int, #name, int, const char*, int, ...);          \
    va_list rest; va_start(rest, flags);                   \
    mode_t mode = va_arg(rest, mode_t); va_end(rest);      \
    return fails_in(at, a) ? -1 : next(at, a, flags, mode); }
OPENAT(openat) OPENAT(openat64)

ON_PATH(int, mkdir, -1, (const char* a, mode_t b), const char*, mode_t) END(a, b)
ON_PATH(int, rmdir, -1, (const char* a), const char*) END(a)
ON_PATH(int, unlink, -1, (const char* a), const char*) END(a)
ON_PATH(int, rename, -1, (const char* a, const char* b), const char*, const char*) END(a, b)
ON_PATH(int, truncate, -1, (const char* a, off_t b), const char*, off_t) END(a, b)
ON_PATH(int, truncate64, -1, (const char* a, off_t b), const char*, off_t) END(a, b)
ON_PATH(int, stat, -1, (const char* a, struct stat* b), const char*, struct stat*) END(a, b)
ON_PATH(int, lstat, -1, (const char* a, struct stat* b), const char*, struct stat*) END(a, b)
ON_PATH(int, stat64, -1, (const char* a, struct stat64* b), const char*, struct stat64*) END(a, b)
ON_PATH(int, lstat64, -1, (const char* a, struct stat64* b), const char*, struct stat64*) END(a, b)
ON_PATH(DIR*, opendir, NULL, (const char* a), const char*) END(a)

int fstatat(int at, const char* a, struct stat* b, int flags) {
  NEXT(int, "fstatat", int, const char*, struct stat*, int);
  return fails_in(at, a) ? -1 : next(at, a, b, flags);
}
int fstatat64(int at, const char* a, struct stat64* b, int flags) {
  NEXT(int, "fstatat64", int, const char*, struct stat64*, int);
  return fails_in(at, a) ? -1 : next(at, a, b, flags);
}
int unlinkat(int at, const char* a, int flags) {
  NEXT(int, "unlinkat", int, const char*, int);
  return fails_in(at, a) ? -1 : next(at, a, flags);
}
int renameat2(int at, const char* a, int to, const char* b, unsigned flags) {
  NEXT(int, "renameat2", int, const char*, int, const char*, unsigned);
  return fails_in(at, a) ? -1 : next(at, a, to, b, flags);
}
#define ON_FILE(type, name, arguments, ...) \
  type name arguments {                     \
    NEXT(type, #name, __VA_ARGS__);         \
    if (fails_in(a, NULL)) return -1;
ON_FILE(ssize_t, read, (int a, void* b, size_t c), int, void*, size_t) END(a, b, c)
ON_FILE(ssize_t, pread64, (int a, void* b, size_t c, off_t d), int, void*, size_t, off_t) END(a, b, c, d)
ON_FILE(ssize_t, write, (int a, const void* b, size_t c), int, const void*, size_t) END(a, b, c)
ON_FILE(int, fsync, (int a), int) END(a)
ON_FILE(int, ftruncate, (int a, off_t b), int, off_t) END(a, b)
ON_FILE(int, ftruncate64, (int a, off_t b), int, off_t) END(a, b)
ON_FILE(int, flock, (int a, int b), int, int) END(a, b)
