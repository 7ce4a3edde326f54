#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/tls_front.h"
#include "net/tls_ticket.h"

#define HOUR (3600 * NS_PER_S)

/* A text sealed as OpenSSL would: its callback's way, then a MAC over it. */
struct ticket {
    unsigned char name[16], iv[EVP_MAX_IV_LENGTH], text[64], sum[32];
    int n;
};

static int use(struct tls_tickets *tickets, struct ticket *ticket, int seal,
               unsigned char out[64])
{
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = EVP_MAC_CTX_new(hmac);
    unsigned char sum[32];
    int rc = tls_tickets_use(tickets, ticket->name, ticket->iv, cipher, mac, seal), n, more;
    size_t sum_n;
    if (rc > 0) {
        const unsigned char *in = seal ? (const unsigned char *)"a session" : ticket->text;
        assert_int_equal(EVP_CipherUpdate(cipher, out, &n, in, seal ? 9 : ticket->n), 1);
        if (EVP_CipherFinal_ex(cipher, out + n, &more) == 1)
            n += more;
        else
            rc = -2;
        if (seal)
            ticket->n = n;
        assert_int_equal(EVP_MAC_init(mac, NULL, 0, NULL), 1);
        assert_int_equal(EVP_MAC_update(mac, seal ? out : ticket->text, (size_t)ticket->n), 1);
        assert_int_equal(EVP_MAC_final(mac, sum, &sum_n, sizeof(sum)), 1);
        if (seal)
            memcpy(ticket->sum, sum, sizeof(sum));
        else if (memcmp(ticket->sum, sum, sizeof(sum)) != 0 || memcmp(out, "a session", 9) != 0)
            rc = -2;
    }
    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(hmac);
    EVP_CIPHER_CTX_free(cipher);
    return rc;
}

static struct ticket sealed(struct tls_tickets *tickets)
{
    struct ticket ticket;
    assert_int_equal(use(tickets, &ticket, 1, ticket.text), 1);
    return ticket;
}

static int opened(struct tls_tickets *tickets, struct ticket ticket)
{
    unsigned char out[64];
    return use(tickets, &ticket, 0, out);
}

static void opens_what_it_sealed_and_nothing_else(void **state)
{
    struct tls_tickets *one = tls_tickets_new(), *other = tls_tickets_new();
    (void)state;
    assert_true(tls_tickets_are_own(one));
    struct ticket a = sealed(one), b = sealed(one);
    assert_memory_not_equal(a.iv, b.iv, sizeof(a.iv));
    assert_int_equal(opened(one, a), 1);
    assert_int_equal(opened(other, a), 0); /* a whole handshake */
    a.name[15] ^= 1;
    assert_int_equal(opened(one, a), 0);
    tls_tickets_unref(one);
    tls_tickets_unref(other);
}

/* A session lasts two hours: sealed just before a key changes it opens through two more. */
static void own_keys_change_every_hour_and_open_for_two_more(void **state)
{
    struct tls_tickets *tickets = tls_tickets_new();
    uint64_t now = 5 * HOUR;
    (void)state;
    tls_tickets_tick(tickets, now); /* from here on an hour is counted */
    struct ticket first = sealed(tickets);
    tls_tickets_tick(tickets, now + HOUR - 1);
    assert_int_equal(opened(tickets, first), 1);
    for (unsigned turn = 1; turn <= 4; turn++) {
        tls_tickets_tick(tickets, now + turn * HOUR);
        tls_tickets_tick(tickets, now + turn * HOUR + HOUR / 2); /* not yet again */
        struct ticket next = sealed(tickets);
        assert_memory_not_equal(next.name, first.name, sizeof(first.name));
        assert_int_equal(opened(tickets, next), 1);
        /* 2: it is opened, and the client gets a new one */
        assert_int_equal(opened(tickets, first), turn <= 2 ? 2 : 0);
    }
    tls_tickets_unref(tickets);
}

static void keys_of_a_file_are_what_it_has(void **state)
{
    char bytes[3 * TLS_TICKET_KEY];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * 7 + i / TLS_TICKET_KEY);
    struct tls_tickets *old =
        tls_tickets_from((struct str){bytes + TLS_TICKET_KEY, TLS_TICKET_KEY});
    struct tls_tickets *all = tls_tickets_from((struct str){bytes, sizeof(bytes)});
    struct tls_tickets *twin = tls_tickets_from((struct str){bytes, TLS_TICKET_KEY});
    struct ticket ticket = sealed(old), fresh;
    assert_false(tls_tickets_are_own(all));
    assert_memory_equal(ticket.name, bytes + TLS_TICKET_KEY, 16);
    assert_int_equal(opened(all, ticket), 2);
    fresh = sealed(all);
    assert_int_equal(opened(twin, fresh), 1); /* gateways that share a file share sessions */
    assert_int_equal(opened(old, fresh), 0);
    for (unsigned hour = 1; hour < 5; hour++)
        tls_tickets_tick(all, hour * HOUR); /* they are not ours to change */
    assert_int_equal(opened(all, fresh), 1);
    assert_int_equal(opened(all, ticket), 2);
    tls_tickets_unref(old);
    tls_tickets_unref(all);
    tls_tickets_unref(twin);
}

static void lives_as_long_as_somebody_has_it(void **state)
{
    struct tls_tickets *tickets = tls_tickets_new();
    (void)state;
    struct ticket ticket = sealed(tickets);
    assert_ptr_equal(tls_tickets_ref(tickets), tickets);
    tls_tickets_unref(tickets);
    assert_int_equal(opened(tickets, ticket), 1);
    tls_tickets_unref(tickets);
    tls_tickets_unref(NULL);
}

static void says_when_memory_is_out(void **state)
{
    (void)state;
    mem_fail_at(1);
    assert_null(tls_tickets_new());
    mem_fail_at(1);
    assert_null(tls_tickets_from((struct str){"", 0}));
    mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_what_it_sealed_and_nothing_else),
        cmocka_unit_test(own_keys_change_every_hour_and_open_for_two_more),
        cmocka_unit_test(keys_of_a_file_are_what_it_has),
        cmocka_unit_test(lives_as_long_as_somebody_has_it),
        cmocka_unit_test(says_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
