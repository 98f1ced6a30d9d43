/* A server that takes its clients, reads from them and answers them through io_uring alone, one operation at a time and without liburing.
 * It writes its port, and answers whatever it is sent with "ok". With "accept" it takes its clients by libc's accept, and the rest is the
 * same. */
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ring;
static unsigned *tail, *mask, *order, *done_head, *done_tail, *done_mask;
static struct io_uring_sqe *entries;
static struct io_uring_cqe *done;

static void begin(void) {
    struct io_uring_params all = {0};
    ring = (int)syscall(__NR_io_uring_setup, 8, &all);
    if (ring < 0) {
        perror("io_uring_setup");
        _exit(9);
    }
    size_t size = all.sq_off.array + all.sq_entries * sizeof(unsigned);
    size_t done_size = all.cq_off.cqes + all.cq_entries * sizeof *done;
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *done_at = mmap(NULL, done_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    entries = mmap(NULL, all.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    tail = (unsigned *)(at + all.sq_off.tail);
    mask = (unsigned *)(at + all.sq_off.ring_mask);
    order = (unsigned *)(at + all.sq_off.array);
    done_head = (unsigned *)(done_at + all.cq_off.head);
    done_tail = (unsigned *)(done_at + all.cq_off.tail);
    done_mask = (unsigned *)(done_at + all.cq_off.ring_mask);
    done = (struct io_uring_cqe *)(done_at + all.cq_off.cqes);
}

static int carry_out(int operation, int fd, void *buffer, unsigned length) {
    unsigned at = *tail & *mask;
    memset(&entries[at], 0, sizeof entries[at]);
    entries[at].opcode = (unsigned char)operation;
    entries[at].fd = fd;
    entries[at].addr = (unsigned long)buffer;
    entries[at].len = length;
    order[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(done_tail, __ATOMIC_ACQUIRE) == *done_head)
        syscall(__NR_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    int result = done[*done_head & *done_mask].res;
    __atomic_store_n(done_head, *done_head + 1, __ATOMIC_RELEASE);
    return result;
}

int main(int count, char **words) {
    int by_libc = count > 1 && !strcmp(words[1], "accept");
    char line[64];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    begin();
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 8);
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int client = by_libc ? accept(listener, NULL, NULL) : carry_out(IORING_OP_ACCEPT, listener, NULL, 0);
        if (client < 0) return 1;
        while (carry_out(IORING_OP_RECV, client, line, sizeof line) > 0) carry_out(IORING_OP_SEND, client, "ok\n", 3);
        close(client);
    }
}
