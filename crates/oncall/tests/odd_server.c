/* A server with a thread per connection that waits for its clients in odd ways, by its first argument. A line is a query, answered by "ok".
 *
 * drain   waits for the first byte, answers what is there, and closes the connection where nothing more is
 * steal   a line "steal" ends the connection of the client before, whose thread waits in read(2), and serves the next client by its number
 * two     poll(2) of the client and of a pipe, then recv without waiting
 * mask    ppoll(2) with a mask of signals, then recv without waiting
 * busy    recv without waiting, again and again
 * peek    looks whether something is there before it reads
 * alarm   read(2), while another thread sends a signal again and again whose handler has SA_RESTART
 * ended   poll(2) without a time, which any signal ends: a line "signal" has one sent while it waits
 * timer   a line "other" closes the client by fclose(3), which no hook sees; its number is a timer's from then on, which is read
 * other   a line "other" closes the client by close_range(2); its number is a pipe's from then on, which is read. A line "wait" is answered when
 *         that was */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "listen.h"

static const char *how;
static int ends[2];
static volatile int has_read, threads, before = -1, listener;

static void nothing(int signal) { (void)signal; }

static void nap(long microseconds) {
    struct timespec time = {0, microseconds * 1000};
    nanosleep(&time, NULL);
}

static void *signals(void *thread) {
    for (;;) {
        nap(2000);
        if (pthread_kill(*(pthread_t *)thread, SIGUSR1)) return NULL;
    }
}

static void *once(void *thread) {
    nap(200000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

static void *writes(void *to) {
    nap(20000);
    if (write((int)(long)to, "x", 1) != 1) abort();
    return NULL;
}

static int is(const char *name) { return !strcmp(how, name); }

/* The next line's length; 0 where there is none. */
static ssize_t line_of(int fd, char *line, size_t room) {
    struct pollfd wait[2] = {{.fd = fd, .events = POLLIN}, {.fd = ends[0], .events = POLLIN}};
    sigset_t none;
    sigemptyset(&none);
    for (;;) {
        if (is("two")) poll(wait, 2, -1);
        if (is("mask")) ppoll(wait, 1, NULL, &none);
        if (is("busy")) nap(100);
        if (is("peek")) {
            char byte;
            if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
                nap(100);
                continue;
            }
        }
        if (is("drain")) {
            struct pollfd first = {.fd = fd, .events = POLLIN};
            if (!*line) poll(&first, 1, -1);
            /* A line at a time. */
            ssize_t length = recv(fd, line, 2, MSG_DONTWAIT);
            return length < 0 ? 0 : length;
        }
        ssize_t length = is("alarm") || is("other") || is("timer") || is("steal") ? read(fd, line, room) : recv(fd, line, room, MSG_DONTWAIT);
        if (length < 0 && errno == EAGAIN) {
            if (is("ended") && poll(wait, 1, -1) < 0 && errno == EINTR) send(fd, "ok\n", 3, MSG_NOSIGNAL);
            continue;
        }
        /* Who takes what is no answer for the end, as many do. */
        return length < 0 ? 0 : length;
    }
}

static void *serve(void *at) {
    int fd = (int)(long)at;
    pthread_t thread = pthread_self(), other;
    char line[64] = "";
    int id = ++threads;
    if (is("alarm")) pthread_create(&other, NULL, signals, &thread);
    for (;;) {
        ssize_t length = line_of(fd, line, sizeof line - 1);
        if (length <= 0) break;
        line[length] = 0;
        /* Answered, so that what is read next is a client's next query, if it is a client. */
        if (!strncmp(line, "other", 5) && send(fd, "ok\n", 3, MSG_NOSIGNAL) < 0) break;
        if (!strncmp(line, "other", 5) && is("timer")) {
            FILE *file = fdopen(fd, "r");
            fclose(file);
            int timer = timerfd_create(CLOCK_MONOTONIC, 0);
            struct itimerspec soon = {.it_value = {.tv_nsec = 50000000}};
            unsigned long long times;
            if (timer != fd || timerfd_settime(timer, 0, &soon, NULL)) abort();
            if (read(timer, &times, sizeof times) != sizeof times) abort();
            close(timer);
            has_read = 1;
            break;
        }
        if (!strncmp(line, "other", 5)) {
#if __GLIBC_PREREQ(2, 34)
            close_range(fd, fd, 0);
#else
            close(fd);
#endif
            int pipe_of[2];
            if (pipe(pipe_of) || pipe_of[0] != fd) abort();
            /* Nobody's client: it waits for what is written a while later. */
            for (int number = 0; number < 3; number++) {
                pthread_create(&other, NULL, writes, (void *)(long)pipe_of[1]);
                if (read(pipe_of[0], line, 1) != 1) abort();
                pthread_join(other, NULL);
            }
            close(pipe_of[1]);
            if (read(pipe_of[0], line, 1) != 0) abort();
            has_read = 1;
            break;
        }
        if (is("steal")) {
            if (!strncmp(line, "steal", 5)) {
                shutdown(before, SHUT_RDWR);
                close(before);
                /* The number of the ended one is the new one's. */
                fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                nap(50000);
            } else {
                before = fd;
                /* Whose answer it is: the first client's thread says "1k". */
                char answer[4] = {(char)('0' + id), 'k', '\n', 0};
                if (send(fd, answer, 3, MSG_NOSIGNAL) < 0) break;
                continue;
            }
        }
        while (!strncmp(line, "wait", 4) && !has_read) nap(1000);
        if (send(fd, "ok\n", 3, MSG_NOSIGNAL) < 0) break;
        if (!strncmp(line, "signal", 6)) pthread_create(&other, NULL, once, &thread);
    }
    /* Its number may be another client's. */
    if (is("steal")) return NULL;
    /* The thread that signals this one is not to find another's. */
    if (is("alarm")) for (;;) pause();
    close(fd);
    return NULL;
}

int main(int count, char **arguments) {
    how = count > 1 ? arguments[1] : "";
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    if (pipe(ends)) return 1;
    listener = listen_anywhere(SOCK_CLOEXEC);
    for (;;) {
        /* From then on it is the thief that accepts. */
        if (is("steal") && threads == 2) pause();
        long client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        pthread_t thread;
        if (!pthread_create(&thread, NULL, serve, (void *)client)) pthread_detach(thread);
        nap(20000);
    }
}
