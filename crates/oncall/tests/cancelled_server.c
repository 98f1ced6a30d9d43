/* A server with a thread per connection whose threads are cancelled by pthread_cancel(3): what a Rust program cannot do to its own.
 *
 * A line is a query: "hold" waits in its midst for ever, "cancel N" cancels the thread of the Nth connection, anything else is answered. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"

enum { MOST = 64 };
static pthread_t threads[MOST];
static int sockets[MOST];

static void cleaned(void *at) { close(*(int *)at); }

static void *serve(void *at) {
    int fd = *(int *)at;
    char line[64];
    pthread_cleanup_push(cleaned, at);
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0) continue;
        ssize_t length = recv(fd, line, sizeof line - 1, 0);
        if (length <= 0) break;
        line[length] = 0;
        if (!strncmp(line, "hold", 4)) pause();
        if (!strncmp(line, "cancel ", 7)) pthread_cancel(threads[atoi(line + 7) % MOST]);
        if (send(fd, "ok\n", 3, 0) < 0) break;
    }
    pthread_cleanup_pop(1);
    return NULL;
}

int main(void) {
    int listener = listen_anywhere(0);
    for (int at = 0; at < MOST; at++) {
        sockets[at] = accept(listener, NULL, NULL);
        pthread_create(&threads[at], NULL, serve, &sockets[at]);
    }
    return 0;
}
