/*
 * Preloaded into a server, keeps a record of what a power failure would leave of its append-only files.
 * Each time the kernel has confirmed a sync, one line "length path" is appended to $DULY_SYNC_FILE: so much
 * of the file was there when the sync began, so so much is safe. The last line of a path counts.
 *
 * It models the loss of what was never synced, at the end of a file; not torn sectors or reordered blocks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int record = -1;

__attribute__((constructor)) static void open_record(void) {
  const char *name = getenv("DULY_SYNC_FILE");
  if (name) record = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void note(int file, long long length) {
  char link[64], path[PATH_MAX], line[PATH_MAX + 32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return;
  path[size] = '\0';
  if (!strstr(path, ".aof")) return;
  int written = snprintf(line, sizeof line, "%lld %s\n", length, path);
  if (written > 0 && write(record, line, (size_t)written) != written) abort(); /* a wrong record proves nothing */
}

static int synced(int file, long number) {
  struct stat before;
  int is_known = record >= 0 && fstat(file, &before) == 0;
  int result = (int)syscall(number, file);
  if (result == 0 && is_known) note(file, (long long)before.st_size);
  return result;
}

int fsync(int file) { return synced(file, SYS_fsync); }

int fdatasync(int file) { return synced(file, SYS_fdatasync); }
