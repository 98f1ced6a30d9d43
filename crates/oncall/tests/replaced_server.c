/* A server with a thread per connection, in a process that another one starts again where it ends, as httpd's worker MPM and mariadbd-safe do.
 *
 * SIGUSR1 to the first process replaces the serving one in peace: that accepts no more clients, and ends when its last one has left. A line is a
 * query, answered by "ok"; a line "for ever" is computed for ever. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "listen.h"

static volatile sig_atomic_t is_asked;
static volatile int connections;

static void asked(int signal) { (void)signal, is_asked = 1; }

static void *serve(void *at) {
    int fd = (int)(long)at;
    char line[64];
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0) continue;
        ssize_t length = recv(fd, line, sizeof line, 0);
        if (length <= 0) break;
        while (!strncmp(line, "for ever", 8)) __asm__ volatile("");
        if (send(fd, "ok\n", 3, MSG_NOSIGNAL) < 0) break;
    }
    close(fd);
    __sync_fetch_and_sub(&connections, 1);
    return NULL;
}

static void accept_clients(int listener) {
    while (!is_asked) {
        /* A signal may come before the wait. */
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, 20) <= 0) continue;
        long client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        pthread_t thread;
        __sync_fetch_and_add(&connections, 1);
        pthread_create(&thread, NULL, serve, (void *)client);
        pthread_detach(thread);
    }
    while (connections) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    _exit(0);
}

int main(void) {
    struct sigaction action = {.sa_handler = asked};
    sigaction(SIGUSR1, &action, NULL);
    int listener = listen_anywhere(SOCK_CLOEXEC | SOCK_NONBLOCK);
    pid_t serving = 0;
    for (;;) {
        if (!serving || is_asked) {
            if (serving) kill(serving, SIGUSR1);
            is_asked = 0;
            serving = fork();
            if (serving == 0) accept_clients(listener);
        }
        pid_t ended = waitpid(-1, NULL, WNOHANG);
        if (ended == serving) serving = 0;
        if (ended <= 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}
