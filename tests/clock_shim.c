/*
 * Preloaded into a server, shifts or stops the time of day it sees. Monotonic clocks stay true while it runs.
 * $DULY_CLOCK_FILE names a file of two signed numbers, microseconds, mapped so that the test can change
 * it while the server runs: the shift, and the time of day at which the clock stands still (0: it runs).
 *
 * Valkey asks for the time of day once a millisecond and counts on from there with the processor's
 * counter, so a clock that stands still would not. Without /proc/cpuinfo it counts with the monotonic
 * clock instead, and while the time of day stands, that one leaps: a millisecond has always passed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MICROSECONDS 1000000LL
#define LEAP 2000000LL /* nanoseconds */

struct setting {
  int64_t shift, frozen;
};

static const struct setting untouched = {0, 0};
static const struct setting *setting = &untouched;
static int64_t leapt = 0; /* nanoseconds; never taken back, so that the clock stays monotonic */

__attribute__((constructor)) static void map_setting(void) {
  const char *name = getenv("DULY_CLOCK_FILE");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) setting = page;
}

static void put(struct timespec *time, int64_t seconds, int64_t nanoseconds) {
  time->tv_sec = seconds + nanoseconds / 1000000000L;
  time->tv_nsec = nanoseconds % 1000000000L;
  if (time->tv_nsec < 0) time->tv_sec -= 1, time->tv_nsec += 1000000000L; /* C rounds toward zero */
}

/* The system call, not libc's function: that one is this one now. */
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result != 0) return result;
  int64_t frozen = __atomic_load_n(&setting->frozen, __ATOMIC_RELAXED);
  if (clock == CLOCK_MONOTONIC) {
    int64_t leaps = __atomic_add_fetch(&leapt, frozen ? LEAP : 0, __ATOMIC_RELAXED);
    put(now, now->tv_sec, now->tv_nsec + leaps);
  } else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
    int64_t microseconds = __atomic_load_n(&setting->shift, __ATOMIC_RELAXED);
    if (frozen)
      put(now, 0, frozen * 1000);
    else
      put(now, now->tv_sec, now->tv_nsec + microseconds * 1000);
  }
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

static FILE *open_unless_cpuinfo(const char *function, const char *name, const char *mode) {
  FILE *(*libc)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, function);
  return strcmp(name, "/proc/cpuinfo") == 0 ? NULL : libc(name, mode);
}

FILE *fopen(const char *restrict name, const char *restrict mode) { return open_unless_cpuinfo("fopen", name, mode); }

FILE *fopen64(const char *restrict name, const char *restrict mode) {
  return open_unless_cpuinfo("fopen64", name, mode);
}
