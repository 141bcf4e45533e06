/* The least that a broker does with a request, in C: `ceiling PATH PIECE_BYTES`.
 *
 * It listens on a free port of 127.0.0.1, prints it, and serves one connection until that is closed. With PIECE_BYTES 0
 * each request is a Produce of version 7 with one batch: the bytes are received, the batch's CRC-32C is compared, its
 * base offset stamped, the batch written behind the last one, and the answers to all frames of one recv leave in one
 * send. Otherwise each request is as long as `bench.ceiling` says, and is answered by the next piece of the file, by
 * sendfile. A log begins again at LOG_BYTES, a file at its end. It checks and remembers nothing else.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 4 << 20, ANSWERS_BYTES = 64 << 10, HEAD_BYTES = 90, ASK_BYTES = 108, SEND_BUFFER_BYTES = 163840 };
static const off_t LOG_BYTES = 512 << 20;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t read32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static uint16_t read16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void write32(uint8_t *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *data, size_t size) {
    uint64_t crc = 0xFFFFFFFF;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    while (size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *data++);
    return ~(uint32_t)crc;
}
#else
static uint32_t crc32c(const uint8_t *data, size_t size) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = byte;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0x82F63B78 : 0);
            table[byte] = value;
        }
    uint32_t crc = 0xFFFFFFFF;
    while (size--)
        crc = crc >> 8 ^ table[(crc ^ *data++) & 255];
    return ~crc;
}
#endif

static void send_all(int sock, const uint8_t *data, size_t size, int flags) {
    while (size) {
        ssize_t sent = send(sock, data, size, flags);
        if (sent < 0)
            fail("send");
        data += sent;
        size -= (size_t)sent;
    }
}

/* Store the batch of one frame, and return the end of the answers with its own. */
static uint8_t *produce(uint8_t *frame, uint32_t frame_bytes, int file, off_t *position, uint64_t *offset, uint8_t *answer) {
    uint8_t *at = frame + 8 + 2 + read16(frame + 8); /* key, version, correlation id, client id */
    at += 2 + 2 + 4 + 4;                              /* no transactional id, acks, timeout, one topic */
    uint8_t *name = at;
    uint32_t name_bytes = 2 + read16(name);
    at += name_bytes + 4; /* one partition */
    uint8_t *partition = at;
    uint32_t batch_bytes = read32(at + 4);
    uint8_t *batch = at + 8;
    if (batch + batch_bytes != frame + frame_bytes || crc32c(batch + 21, batch_bytes - 21) != read32(batch + 17)) {
        fprintf(stderr, "no Produce of version 7 with one batch\n");
        exit(1);
    }
    write32(batch, (uint32_t)(*offset >> 32));
    write32(batch + 4, (uint32_t)*offset);
    write32(batch + 12, 0);
    if (*position + batch_bytes > LOG_BYTES)
        *position = 0;
    if (pwrite(file, batch, batch_bytes, *position) != (ssize_t)batch_bytes)
        fail("pwrite");
    *position += batch_bytes;
    uint32_t size = 4 + 4 + name_bytes + 4 + 4 + 2 + 8 + 8 + 8 + 4;
    memset(answer, 0, size + 4);
    write32(answer, size);
    memcpy(answer + 4, frame + 4, 4); /* the correlation id */
    write32(answer + 8, 1);
    memcpy(answer + 12, name, name_bytes);
    uint8_t *found = answer + 12 + name_bytes;
    write32(found, 1);
    memcpy(found + 4, partition, 4);
    memcpy(found + 10, batch, 8); /* the base offset */
    memset(found + 18, 255, 8);
    *offset += read32(batch + 57);
    return answer + size + 4;
}

static void serve_produces(int sock, int file) {
    static uint8_t buffer[BUFFER_BYTES], answers[ANSWERS_BYTES];
    size_t held = 0;
    off_t position = 0;
    uint64_t offset = 0;
    ssize_t count;
    while ((count = recv(sock, buffer + held, BUFFER_BYTES - held, 0)) > 0) {
        uint8_t *at = buffer, *end = buffer + held + count, *answer = answers;
        while (end - at >= 4 && (size_t)(end - at) >= 4 + (size_t)read32(at)) {
            if (answer + 1024 > answers + ANSWERS_BYTES) {
                send_all(sock, answers, (size_t)(answer - answers), 0);
                answer = answers;
            }
            answer = produce(at + 4, read32(at), file, &position, &offset, answer);
            at += 4 + read32(at);
        }
        held = (size_t)(end - at);
        memmove(buffer, at, held);
        if (answer != answers)
            send_all(sock, answers, (size_t)(answer - answers), 0);
    }
}

static void serve_pieces(int sock, int file, off_t piece_bytes) {
    uint8_t ask[ASK_BYTES], head[HEAD_BYTES] = {0};
    off_t position = 0, log_bytes = lseek(file, 0, SEEK_END);
    while (recv(sock, ask, ASK_BYTES, MSG_WAITALL) == ASK_BYTES) {
        if (position + piece_bytes > log_bytes)
            position = 0;
        send_all(sock, head, HEAD_BYTES, MSG_MORE);
        for (off_t end = position + piece_bytes; position < end;)
            if (sendfile(sock, file, &position, (size_t)(end - position)) <= 0)
                fail("sendfile");
    }
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    int file = open(arguments[1], O_RDWR | O_CREAT, 0644), listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    int send_buffer = SEND_BUFFER_BYTES;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof place;
    if (file < 0 || listening < 0 || bind(listening, (struct sockaddr *)&place, size) || listen(listening, 1) ||
        getsockname(listening, (struct sockaddr *)&place, &size))
        fail("listen");
    printf("%d\n", ntohs(place.sin_port));
    fflush(stdout);
    int sock = accept(listening, NULL, NULL);
    if (sock < 0)
        fail("accept");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
    off_t piece_bytes = atoll(arguments[2]);
    if (piece_bytes)
        serve_pieces(sock, file, piece_bytes);
    else
        serve_produces(sock, file);
    return 0;
}
