/*
 * Preloaded into a server, shifts the time of day it sees. Only that: monotonic clocks stay true.
 * $DULY_CLOCK_FILE names a file of 8 bytes, a signed number of microseconds, mapped so that the
 * test can change it while the server runs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MICROSECONDS 1000000LL

static const int64_t no_shift = 0;
static const int64_t *shift = &no_shift;

__attribute__((constructor)) static void map_shift(void) {
  const char *name = getenv("DULY_CLOCK_FILE");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) shift = page;
}

/* The system call, not libc's function: that one is this one now. */
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  int64_t microseconds = __atomic_load_n(shift, __ATOMIC_RELAXED);
  now->tv_sec += microseconds / MICROSECONDS;
  now->tv_nsec += microseconds % MICROSECONDS * 1000;
  if (now->tv_nsec >= 1000000000L) now->tv_sec += 1, now->tv_nsec -= 1000000000L;
  if (now->tv_nsec < 0) now->tv_sec -= 1, now->tv_nsec += 1000000000L; /* C rounds toward zero */
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
