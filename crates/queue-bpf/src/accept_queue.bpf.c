// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What every arrival at a port's accept queues sees.
//
// The raw tracepoint sk_data_ready (Linux 6.2 and later) fires with a listening socket each time an established
// connection has been put in its accept queue. Its sk_ack_backlog then is the queue's length with that connection; one
// less is the length that the connection saw, which is what the paper's patched kernel accumulates (Section 6.1.2).
//
// A client that resets its connection while that waits in the queue, and has sent nothing, leaves an entry which the server
// accepts in no time and for nothing; no list of connections has it any more. One that has sent a part of a request leaves
// what the server reads in no time too, one that has sent all of it leaves a request to work on. The raw tracepoint
// inet_sock_set_state fires when that happens, and these are counted: of the port, for the connection does not name its
// listener. So are all whose clients closed or reset them and had asked nothing, or were sent nothing, accepted or not: what
// the server accepts of these may be no request. And so is each that the server is done with and has sent something, once: it
// was answered, whatever else was accepted.
//
// No kernel header is needed: the few fields that are read are declared here, and the loader moves them to where the
// running kernel has them (CO-RE, by the kernel's own BTF). The licence lets the program use bpf_probe_read_kernel.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define KERNEL_TYPE __attribute__((preserve_access_index))

/* include/uapi/linux/bpf.h */
enum { MAP_TYPE_ARRAY = 2, MAP_TYPE_PERCPU_HASH = 5 };
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

/* include/net/tcp_states.h */
enum { ESTABLISHED = 1, FIN_WAIT1 = 4, CLOSE = 7, CLOSE_WAIT = 8, LAST_ACK = 9, LISTEN = 10 };

struct ns_common {
	u32 inum;
} KERNEL_TYPE;

struct net {
	struct ns_common ns;
} KERNEL_TYPE;

typedef struct {
	struct net *net;
} KERNEL_TYPE possible_net_t;

typedef struct {
	s64 counter;
} KERNEL_TYPE atomic64_t;

struct sock_common {
	u16 skc_num;
	u16 skc_family;
	u8 skc_state;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
} KERNEL_TYPE;

struct socket;

struct sock {
	struct sock_common __sk_common;
	u32 sk_ack_backlog;
	/* None while a connection is in the accept queue. */
	struct socket *sk_socket;
} KERNEL_TYPE;

struct inet_sock {
	/* In the order of the network. */
	u16 inet_sport;
} KERNEL_TYPE;

struct tcp_sock {
	u64 bytes_received;
	u64 bytes_sent;
	/* Of what the server has written, and of what was sent of that, the end. */
	u32 write_seq;
	u32 snd_nxt;
} KERNEL_TYPE;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FROM_NETWORK(number) __builtin_bswap16(number)
#else
#define FROM_NETWORK(number) (number)
#endif

#define READ(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

/* Set by the loader. A port is the same number in every network namespace: only one of them is meant. */
volatile const u16 port = 0;
volatile const u32 namespace_inode = 0;

/* Of one listening socket, on one processor. The reader sums the processors. All u64: the reader takes it as an array. */
struct tally {
	u64 enqueued;
	/* Sum over those of the length that each saw. */
	u64 seen;
	/* The longest that was seen in the window below. */
	u64 longest;
	u64 window;
	/* The socket's cookie: what sock_diag calls it, or 0 while nobody has asked sock_diag for it. */
	u64 cookie;
};

/* By the socket's address: its cookie would do, but is 0 until it is asked for. At most 1024 listeners; connections of
 * more are counted as lost. */
struct {
	int (*type)[MAP_TYPE_PERCPU_HASH];
	int (*max_entries)[1024];
	u64 *key;
	struct tally *value;
} tallies SEC(".maps");

/* [WINDOW]: advanced by the reader at each sample, so that the longest length is that since the last one.
 * [LOST]: connections that no tally had room for. [RESETS]: connections that were reset in a queue and had asked nothing.
 * [CANCELLED]: those that had sent something. [UNASKED]: all that were closed or reset by clients that had asked nothing, or were sent
 * nothing, and those that the server closed and had sent nothing.
 * [ANSWERED]: those that the server was done with and had sent something. */
enum { WINDOW, LOST, RESETS, CANCELLED, UNASKED, ANSWERED, CONTROLS };
struct {
	int (*type)[MAP_TYPE_ARRAY];
	int (*max_entries)[CONTROLS];
	u32 *key;
	u64 *value;
} controls SEC(".maps");

/* Whether a socket is of the network namespace that is meant. */
static __attribute__((always_inline)) int is_here(struct sock *sk)
{
	u32 inode = 0;
	struct net *net = 0;

	READ(net, sk->__sk_common.skc_net.net);
	READ(inode, net->ns.inum);
	return inode == namespace_inode;
}

static __attribute__((always_inline)) void count(u32 control)
{
	u64 *counter = bpf_map_lookup_elem(&controls, &control);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

SEC("raw_tp/inet_sock_set_state")
int client_left(u64 *context)
{
	struct sock *sk = (struct sock *)context[0];
	int before = (int)context[1], after = (int)context[2];
	struct socket *socket = 0;
	u16 number = 0;
	u64 received = 0, sent = 0;
	int closes = before == ESTABLISHED && after == CLOSE_WAIT;
	int resets = after == CLOSE && (before == ESTABLISHED || before == CLOSE_WAIT);
	/* The server closes first, or after the client. */
	int ends = (before == ESTABLISHED && after == FIN_WAIT1) || (before == CLOSE_WAIT && after == LAST_ACK);
	u32 written = 0, next = 0;
	int answered = 0;

	if (!closes && !resets && !ends)
		return 0;
	/* What closes has given up its skc_num by now (tcp_set_state, inet_put_port). */
	READ(number, ((struct inet_sock *)sk)->inet_sport);
	if (FROM_NETWORK(number) != port || !is_here(sk))
		return 0;
	READ(socket, sk->sk_socket);
	READ(received, ((struct tcp_sock *)sk)->bytes_received);
	READ(sent, ((struct tcp_sock *)sk)->bytes_sent);
	/* A close is counted as a byte (tcp_rcv_nxt_update). */
	if (received && (closes || before == CLOSE_WAIT))
		received -= 1;
	/* Each once. Whoever has asked for something and closed its side may be answered yet, and is counted at the end of the other one. */
	if (closes) {
		if (!received)
			count(UNASKED);
		return 0;
	}
	READ(written, ((struct tcp_sock *)sk)->write_seq);
	READ(next, ((struct tcp_sock *)sk)->snd_nxt);
	/* What the server wrote and closed at once may not be sent yet. */
	answered = sent || written != next;
	/* A greeting is no answer to a client that asks nothing and goes. */
	if (before == ESTABLISHED || received)
		count(answered && (received || ends) ? ANSWERED : UNASKED);
	if (resets && !socket)
		count(received ? CANCELLED : RESETS);
	return 0;
}

SEC("raw_tp/sk_data_ready")
int accept_queue(u64 *context)
{
	struct sock *sk = (struct sock *)context[0];
	u8 state = 0;
	u16 number = 0;
	u32 backlog = 0, at = WINDOW;
	u64 cookie = 0, key = (u64)sk, *window, saw;
	struct tally *tally;

	/* The tracepoint fires for every piece of data on every socket: most calls end here. */
	READ(state, sk->__sk_common.skc_state);
	if (state != LISTEN)
		return 0;
	READ(number, sk->__sk_common.skc_num);
	if (number != port || !is_here(sk))
		return 0;

	READ(backlog, sk->sk_ack_backlog);
	READ(cookie, sk->__sk_common.skc_cookie);
	window = bpf_map_lookup_elem(&controls, &at);
	if (!window)
		return 0;
	tally = bpf_map_lookup_elem(&tallies, &key);
	if (!tally) {
		struct tally empty = {};

		bpf_map_update_elem(&tallies, &key, &empty, 0);
		tally = bpf_map_lookup_elem(&tallies, &key);
		if (!tally) {
			u64 *lost;

			at = LOST;
			lost = bpf_map_lookup_elem(&controls, &at);
			if (lost)
				__sync_fetch_and_add(lost, 1);
			return 0;
		}
	}
	/* A server on another processor may have accepted this connection already. */
	saw = backlog ? backlog - 1 : 0;
	if (tally->window != *window) {
		tally->window = *window;
		tally->longest = 0;
	}
	if (saw > tally->longest)
		tally->longest = saw;
	tally->enqueued += 1;
	tally->seen += saw;
	tally->cookie = cookie;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
