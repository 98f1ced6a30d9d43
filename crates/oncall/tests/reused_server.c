/* A server in which the thread of one connection ends another connection and takes a new one before the ended one's thread has run.
 *
 * A line is a query. The first two clients have a thread each, all on one processor; "take" ends the second one's connection, and its thread goes
 * on with the third client, who waits to be accepted. Where it may be scheduled before all others, no other thread runs in between. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"

static int listener, second;

static void rank(int policy, int priority) {
    struct sched_param parameter = {.sched_priority = priority};
    pthread_setschedparam(pthread_self(), policy, &parameter);
}

static int take(void) {
    rank(SCHED_FIFO, 1);
    shutdown(second, SHUT_RDWR);
    close(second);
    // The number of the ended connection is not the new one's.
    dup(listener);
    int third = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char byte;
    recv(third, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    rank(SCHED_OTHER, 0);
    return third;
}

static void *serve(void *at) {
    int fd = *(int *)at;
    char line[64];
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0) continue;
        ssize_t length = recv(fd, line, sizeof line - 1, 0);
        if (length <= 0) return NULL;
        line[length] = 0;
        if (send(fd, "ok\n", 3, MSG_NOSIGNAL) < 0) return NULL;
        if (!strncmp(line, "take", 4)) fd = take();
    }
}

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    listener = listen_anywhere(SOCK_CLOEXEC);
    int sockets[2];
    for (int at = 0; at < 2; at++) {
        sockets[at] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        second = sockets[at];
        pthread_t thread;
        pthread_create(&thread, NULL, serve, &sockets[at]);
    }
    for (;;) pause();
}
