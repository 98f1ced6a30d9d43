/* What the servers of these tests begin with. */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

/* Listens on a free port of this machine, and writes which. */
static int listen_anywhere(int flags) {
    int listener = socket(AF_INET, SOCK_STREAM | flags, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 64);
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}
