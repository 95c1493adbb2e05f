/* Clocks of the time of day that are ahead of the machine's, by as many seconds as the file CLOCK_FILE has, as a
   64-bit number: for LD_PRELOAD. It may change at any time, for all processes at once. Clocks of durations, and waits
   for these, are as ever. Times of files are the kernel's. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        ahead_s = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && ahead_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec read;
    int failed = clock_gettime(CLOCK_REALTIME, &read);
    (void)zone;
    if (!failed) {
        now->tv_sec = read.tv_sec;
        now->tv_usec = read.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *kept)
{
    struct timespec read;
    time_t now = clock_gettime(CLOCK_REALTIME, &read) ? (time_t)-1 : read.tv_sec;
    if (kept)
        *kept = now;
    return now;
}
