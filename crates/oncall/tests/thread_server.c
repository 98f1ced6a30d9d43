/* A server with a thread per connection, and what may stand between it and whoever starts it.
 *
 *   as-nobody PROGRAM ...   becomes user 65534 and executes the program
 *   closing FD PROGRAM ...  closes the descriptor and executes the program
 *   other FD PROGRAM ...    puts another file under the descriptor's number and executes the program
 *   has FD                  ends with 0 where the descriptor is open, and with 1 where it is not
 *   serve FD                writes its port and serves: the line "open" asks a program that it starts whether FD is open there, and is
 *                           answered with "ok" where it is not; anything else is answered with "ok"
 *   raw                     the same, but that it waits for its clients, reads from them and answers "ok" by instructions of its own: no
 *                           function of libc's is called for that. x86-64 alone */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "listen.h"

static const char *self, *number;

static int is_open_in_a_program(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "has", number, (char *)NULL);
        _exit(2);
    }
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 1;
}

static void *serve(void *at) {
    int fd = (int)(long)at;
    char line[64];
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0) continue;
        ssize_t length = recv(fd, line, sizeof line - 1, 0);
        if (length <= 0) break;
        line[length] = 0;
        int is_bad = !strncmp(line, "open", 4) && is_open_in_a_program();
        if (send(fd, is_bad ? "no\n" : "ok\n", 3, MSG_NOSIGNAL) < 0) break;
    }
    close(fd);
    return NULL;
}

#ifdef __x86_64__
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void *serve_raw(void *at) {
    char line[64];
    while (call(SYS_read, (long)at, (long)line, sizeof line) > 0) call(SYS_write, (long)at, (long)"ok\n", 3);
    close((int)(long)at);
    return NULL;
}
#endif

static int listen_and_serve(void *(*serve)(void *)) {
    int listener = listen_anywhere(SOCK_CLOEXEC);
    for (;;) {
        pthread_t thread;
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) return 1;
        pthread_create(&thread, NULL, serve, (void *)(long)client);
        pthread_detach(thread);
    }
}

int main(int count, char **words) {
#ifdef __x86_64__
    if (count == 2 && !strcmp(words[1], "raw")) return listen_and_serve(serve_raw);
#endif
    if (count < 3) return 2;
    self = words[0];
    char **next = words + 3;
    if (!strcmp(words[1], "as-nobody")) {
        next = words + 2;
        if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) return 3;
    } else if (!strcmp(words[1], "closing")) {
        close(atoi(words[2]));
    } else if (!strcmp(words[1], "other")) {
        int fd = open("/dev/null", O_RDWR);
        if (dup2(fd, atoi(words[2])) < 0) return 4;
    } else if (!strcmp(words[1], "has")) {
        return fcntl(atoi(words[2]), F_GETFD) < 0;
    } else {
        number = words[2];
        return listen_and_serve(serve);
    }
    execv(next[0], next);
    return 5;
}
