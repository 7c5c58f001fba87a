/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: parsing and help. */
#include "harness/command_line.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "harness/machine/team.h"
#include "harness/program.h"
#include "results/table.h"
#include "workloads/files.h"

/* Options of every command: how tables look. */
typedef struct table_look {
    enum { AUTOMATIC, ALWAYS, NEVER } colour;
    bool wide;
} table_look;

static table_look look;
static const kvb_option common[] = {
    {"--color", "WHEN", "what passed and failed in colour: auto (on a terminal, unless NO_COLOR is set), always, never",
     KVB_CHOICE(table_look, colour, "choice: auto, always, never")},
    {"--wide", NULL, "tables as wide as they are: nothing is folded, or left out to fit the terminal",
     KVB_FLAG(table_look, wide)},
    KVB_OPTIONS_END,
};

static void option_print(const char *name, const char *argument, const char *help)
{
    char left[64], line[1024];
    snprintf(left, sizeof left, "%s %s", name, argument ? argument : "");
    const size_t wide = kvb_utf8_width(left);
    snprintf(line, sizeof line, "  %s%*s %s", left, wide < 24 ? (int)(24 - wide) : 0, "", help);
    kvb_folded_put(line, 27, stdout);
}

static void options_print(const kvb_option *o)
{
    for (; o->name; o++)
        if (*o->name)
            option_print(o->name, o->argument, o->help);
        else
            printf("\n%s\n", o->help);
}

/* The indent of a folded line's continuation: below an example's explanation, which follows a gap. */
static size_t indent_of(const char *line)
{
    const char *gap = *line == ' ' ? strstr(line + 2, "  ") : NULL;
    return gap ? (size_t)(gap - line) + strspn(gap, " ") : *line == ' ' ? 6 : 0;
}

/* Indented lines are examples and stay lines; the lines between them are joined and folded. */
static void about_print(const char *text)
{
    char flow[4096];
    for (size_t n = 0; *text; text += *text == '\n') {
        const size_t line = strcspn(text, "\n");
        n += (size_t)snprintf(flow + n, sizeof flow - n, "%s%.*s", n ? " " : "", (int)line, text);
        text += line;
        if (!*text || text[1] == '\n' || text[1] == ' ' || *flow == ' ' || !n) {
            kvb_folded_put(flow, indent_of(flow), stdout);
            n = 0;
        }
    }
}

/* Sets how tables look. */
static void look_choose(void)
{
    const char *no_color = getenv("NO_COLOR");
    struct winsize size = {.ws_col = 0};
    const bool terminal = isatty(STDOUT_FILENO);
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
        size.ws_col = 0;
    kvb_table_view(look.wide ? SIZE_MAX : size.ws_col,
                   look.colour == ALWAYS || (look.colour == AUTOMATIC && terminal && !(no_color && *no_color)));
}

static void usage_print(const kvb_command *command)
{
    printf("usage: kvbench %s %s\n\n", command->name, command->synopsis);
    about_print(command->about);
    puts("\noptions:");
    options_print(command->options);
    if (command->knobs)
        option_print("--set", "KEY[=VALUE]", "what is rarely needed (kvbench list knobs); repeatable");
    options_print(common);
    option_print("--help", NULL, "this text");
    printf("\nexit: 0 all good; 1 a check failed; 2 bad usage or input; 3 this machine cannot do it;\n      4 "
           "undecided (compare --strict)\n");
}

static const char *running = ""; /* the command that runs */

int kvb_complain(const char *command, int exit_code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    kvb_progress_end();
    char *text;
    int n = vasprintf(&text, format, args);
    va_end(args);
    for (int i = 0; i < n; i++) /* quoted text may come from a hostile file: see workloads/files.h */
        text[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    fprintf(stderr, "kvbench %s: %s\n", command ? command : running, n < 0 ? "no memory to say why" : text);
    free(n < 0 ? NULL : text);
    return exit_code;
}

int kvb_fail(int error, const char *why)
{
    if (error == -EINTR && kvb_stopped) {
        fflush(stdout);
        kvb_complain(NULL, 0, "stopped by a signal");
        kvb_stop_die();
    }
    return kvb_complain(NULL, error == -EINVAL ? KVB_EXIT_USAGE : KVB_EXIT_MACHINE, "%s",
                        *why ? why : strerror(-error));
}

#define PART_BYTES 64u /* compared bytes of a name */

uint32_t kvb_name_distance(const char *typed, const char *name)
{
    uint32_t row[PART_BYTES + 1];
    size_t n = strnlen(typed, PART_BYTES), m = strnlen(name, PART_BYTES);

    if (strcasestr(name, typed))
        return 0;
    for (uint32_t j = 0; j <= m; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            uint32_t change = corner + (tolower((unsigned char)typed[i - 1]) != tolower((unsigned char)name[j - 1]));
            uint32_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = change < step ? change : step;
        }
    }
    return row[m];
}

int kvb_name_unknown(const char *what, const char *typed, const char *known, char *why, size_t why_bytes)
{
    char nearest[PART_BYTES + 1] = "";
    size_t length = strlen(typed + strspn(typed, "-"));
    uint32_t least = (uint32_t)(length + 1) / 3 + 1; /* a suggested name must be nearer */

    for (const char *at = known; length > 2 && *at && *at != ';'; at += strspn(at, ", ")) {
        char name[PART_BYTES + 1];
        size_t n = strcspn(at, ", ;");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        if (kvb_name_distance(typed, name) < least) {
            least = kvb_name_distance(typed, name);
            memcpy(nearest, name, sizeof nearest);
        }
        at += n;
    }
    snprintf(why, why_bytes, "%s '%s'; %s%s%sknown: %s", what, typed, *nearest ? "did you mean '" : "", nearest,
             *nearest ? "'? " : "", known);
    return -EINVAL;
}

int kvb_unknown(const char *command, const char *what, const char *typed, const char *known)
{
    char why[4096];
    kvb_name_unknown(what, typed, known, why, sizeof why);
    return kvb_complain(command, KVB_EXIT_USAGE, "%s", why);
}

/* An option as typed: one or two words. */
typedef struct typed {
    const kvb_option *option; /* NULL: unknown */
    const char *value;        /* NULL: none was typed */
    int words;
    enum { OPTION, COMMON, KNOB, OLD_KNOB } kind; /* OLD_KNOB: without --set */
} typed;

static bool is_name(const kvb_option *o, const char *word, size_t length)
{
    return strlen(o->name) == length && !strncmp(o->name, word, length);
}

static const kvb_option *knob_find(const kvb_command *command, const char *key, size_t length)
{
    for (const kvb_knob *k = command->knobs; k && k->option.name; k++)
        if (length + 2 == strlen(k->option.name) && !strncmp(k->option.name + 2, key, length))
            return &k->option;
    return NULL;
}

/* Reads the option at argv[0]; argv[1] may be its value. argv[1] NULL: argv[0] is the last word. */
static typed typed_of(const kvb_command *command, char **argv)
{
    const char *word = argv[0];
    const size_t length = strcspn(word, "=");
    typed t = {.value = word[length] ? word + length + 1 : NULL, .words = 1};
    if (command->knobs && length == 5 && !strncmp(word, "--set", 5)) {
        const char *knob = t.value ? t.value : argv[1];
        t.words = t.value || !argv[1] ? 1 : 2;
        t.kind = KNOB;
        const size_t key = knob ? strcspn(knob, "=") : 0;
        t.option = knob ? knob_find(command, knob, key) : NULL;
        t.value = knob && knob[key] ? knob + key + 1 : NULL;
        return t;
    }
    for (const kvb_option *o = command->options; o->name && !t.option; o++)
        t.option = is_name(o, word, length) ? o : NULL;
    for (const kvb_option *o = common; o->name && !t.option; o++)
        if (is_name(o, word, length)) {
            t.option = o;
            t.kind = COMMON;
        }
    if (!t.option && length > 2 && !strncmp(word, "--", 2) && (t.option = knob_find(command, word + 2, length - 2)))
        t.kind = OLD_KNOB;
    if (t.option && t.option->argument && !t.value && argv[1]) {
        t.value = argv[1];
        t.words = 2;
    }
    return t;
}

#define MOST_NAMED 20u /* options that a message names; if there are more it points to --help */

static int option_unknown(const kvb_command *command, const char *word)
{
    char known[1024] = "", why[4096];
    size_t n = 0;
    const kvb_option *const lists[] = {command->options, common};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const kvb_option *o = lists[i]; o->name; o++)
            if (*o->name)
                n += kvb_list_add(known, sizeof known, " ", "%s", o->name);
    kvb_list_add(known, sizeof known, " ", "--help");
    kvb_name_unknown("unknown option", word, known, why, sizeof why);
    char *list = strstr(why, " known: ");
    if (n > MOST_NAMED && list)
        snprintf(list, sizeof why - (size_t)(list - why), " kvbench %s --help lists them", command->name);
    return kvb_complain(command->name, KVB_EXIT_USAGE, "%s", why);
}

int kvb_words_add(kvb_words *words, const char *word)
{
    const char **at = realloc(words->at, (words->n + 2) * sizeof *at);
    if (!at)
        return -ENOMEM;
    at[words->n++] = word;
    at[words->n] = NULL;
    words->at = at;
    return 0;
}

/* Finds the index of a word in the list after "NAME: ". */
static int choice_take(const char *words, int *choice, const char *value, char *why, size_t why_bytes)
{
    const char *list = strstr(words, ": ") + 2;
    char what[32];
    *choice = 0;
    for (const char *at = list; *at; at += strspn(at, ", "), ++*choice) {
        const size_t n = strcspn(at, ", ");
        if (strlen(value) == n && !strncmp(at, value, n))
            return 0;
        at += n;
    }
    snprintf(what, sizeof what, "unknown %.*s", (int)(list - 2 - words), words);
    return kvb_name_unknown(what, value, list, why, why_bytes);
}

static int value_take(const kvb_option *o, void *into, const char *value, char *why, size_t why_bytes)
{
    void *field = (char *)into + o->field;
    if (value && !*value)
        return kvb_why_set(-EINVAL, why, why_bytes, "is empty");
    switch (o->kind) {
    case KVB_OPTION_FLAG:
        *(bool *)field = true;
        return 0;
    case KVB_OPTION_TEXT:
        *(const char **)field = value;
        return 0;
    case KVB_OPTION_NUMBER:
        return kvb_number_parse(value, o->min, o->max, field, why, why_bytes);
    case KVB_OPTION_CHOICE:
        return choice_take(o->words, field, value, why, why_bytes);
    case KVB_OPTION_WORDS:
        for (size_t i = 0; i < ((kvb_words *)field)->n; i++)
            if (!strcmp(((kvb_words *)field)->at[i], value))
                return kvb_why_set(-EINVAL, why, why_bytes, "'%s' is given twice", value);
        snprintf(why, why_bytes, "no memory");
        return kvb_words_add(field, value);
    }
    return -EINVAL;
}

static int knob_unknown(const kvb_command *command, const char *word)
{
    char known[1024] = "", key[64];
    if (!word)
        return kvb_complain(command->name, KVB_EXIT_USAGE, "--set needs a value: --set KEY=VALUE (kvbench list knobs)");
    for (const kvb_knob *k = command->knobs; k->option.name; k++)
        kvb_list_add(known, sizeof known, " ", "%s", k->option.name + 2);
    snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "="), word);
    return kvb_unknown(command->name, "--set: unknown knob", key, known);
}

void kvb_knobs_set_usual(const kvb_knob *knobs, void *into)
{
    char why[320];
    for (; knobs->option.name; knobs++)
        if (knobs->usual)
            value_take(&knobs->option, into, knobs->usual, why, sizeof why);
}

/* Stores the value of one option. Returns -1 to go on, or an exit code. */
static int typed_take(const kvb_command *command, const typed *t, char **argv, void *into)
{
    const kvb_option *o = t->option;
    const bool knob = t->kind == KNOB || t->kind == OLD_KNOB;
    const char *name = o && t->kind == KNOB ? o->name + 2 : o ? o->name : "";
    char why[320];
    if (!o && t->kind == KNOB)
        return knob_unknown(command, t->words == 2 ? argv[1] : strchr(argv[0], '=') ? strchr(argv[0], '=') + 1 : NULL);
    if (!o)
        return option_unknown(command, argv[0]);
    if (o->argument && !t->value)
        return kvb_complain(command->name, KVB_EXIT_USAGE, "%s needs a value: %s%s%s", name, name,
                            t->kind == KNOB ? "=" : " ", o->argument);
    if (!o->argument && t->value)
        return kvb_complain(command->name, KVB_EXIT_USAGE, "%s takes no value", name);
    if (t->kind == OLD_KNOB)
        kvb_complain(command->name, 0, "note: %s is --set %s%s%s now", name, name + 2, o->argument ? "=" : "",
                     o->argument ? t->value : "");
    void *at = t->kind == COMMON ? (void *)&look : knob ? (char *)into + command->knobs_at : into;
    if (value_take(o, at, t->value, why, sizeof why) < 0)
        return kvb_complain(command->name, KVB_EXIT_USAGE, "%s: %s", name, why);
    return -1;
}

int kvb_options_parse(const kvb_command *command, void *into, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            usage_print(command);
            return KVB_EXIT_OK;
        }
        if (word[0] != '-' || !word[1] || (command->takes_words && !strcmp(word, "--"))) {
            if (!command->takes_words)
                return kvb_complain(command->name, KVB_EXIT_USAGE, "takes no argument like '%s'; see --help", word);
            if (kvb_words_add((kvb_words *)((char *)into + command->words), word))
                return kvb_complain(command->name, KVB_EXIT_MACHINE, "no memory");
            continue;
        }
        const typed t = typed_of(command, argv + i);
        const int code = typed_take(command, &t, argv + i, into);
        if (code >= 0)
            return code;
        i += t.words - 1;
    }
    look_choose();
    return -1;
}

/* Frees the lists of words. */
static void options_free(const kvb_command *command, void *into)
{
    for (const kvb_option *o = command->options; o && o->name; o++)
        if (o->kind == KVB_OPTION_WORDS)
            kvb_words_free((kvb_words *)((char *)into + o->field));
    for (const kvb_knob *k = command->knobs; k && k->option.name; k++)
        if (k->option.kind == KVB_OPTION_WORDS)
            kvb_words_free((kvb_words *)((char *)into + command->knobs_at + k->option.field));
    if (command->takes_words)
        kvb_words_free((kvb_words *)((char *)into + command->words));
    free(into);
}

int kvb_command_call(const kvb_command *command, int argc, char **argv)
{
    void *options = calloc(1, command->bytes + 1);
    running = command->name;
    if (!options)
        return kvb_complain(command->name, KVB_EXIT_MACHINE, "no memory");
    if (command->usual)
        memcpy(options, command->usual, command->bytes);
    if (command->knobs)
        kvb_knobs_set_usual(command->knobs, (char *)options + command->knobs_at);
    const int code = command->options ? kvb_options_parse(command, options, argc, argv) : -1;
    const int ran = code < 0 ? command->run(options, argc, argv) : code;
    options_free(command, options);
    return ran;
}

void kvb_words_free(kvb_words *words)
{
    free(words->at);
    *words = (kvb_words){0};
}

bool kvb_words_match(const kvb_words *words, const char *name)
{
    bool match = words->n == 0;
    for (size_t i = 0; i < words->n && !match; i++)
        match = !fnmatch(words->at[i], name, 0);
    return match;
}

int kvb_number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *number, char *why, size_t why_bytes)
{
    uint64_t n = 0;
    const char *p = text;
    bool fits = true;
    for (; *p >= '0' && *p <= '9'; p++)
        fits = fits && !__builtin_mul_overflow(n, 10u, &n) && !__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
    static const char suffixes[] = "kMG";
    const char *suffix = *p && p > text ? strchr(suffixes, *p == 'K' ? 'k' : *p) : NULL;
    if (suffix) {
        fits = fits && !__builtin_mul_overflow(n, (uint64_t)1 << (10 * (suffix - suffixes + 1)), &n);
        p++;
    }
    if (p == text || *p || !fits || n < min || n > max)
        return kvb_why_set(-EINVAL, why, why_bytes, "'%s' is not a whole number of %llu to %llu", text,
                           (unsigned long long)min, (unsigned long long)max);
    *number = n;
    return 0;
}

int kvb_printed(const char *command, int error)
{
    return !error || error == -EIO ? KVB_EXIT_OK : kvb_complain(command, KVB_EXIT_MACHINE, "%s", strerror(-error));
}

int kvb_output_end(const char *command, int exit_code)
{
    struct pollfd reader = {.fd = STDOUT_FILENO};
    bool lost = fflush(stdout) || ferror(stdout);
    if (!lost || (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR))
        return exit_code;
    return kvb_complain(command, KVB_EXIT_MACHINE, "cannot write to standard output");
}

static int thread_count_add(uint64_t count, uint32_t *list, size_t room, size_t *n, char *why, size_t why_bytes)
{
    size_t at = 0;
    while (at < *n && list[at] != count)
        at++;
    if (at < *n)
        snprintf(why, why_bytes, "%llu is given twice", (unsigned long long)count);
    else if (at == room)
        snprintf(why, why_bytes, "more than %zu thread counts", room);
    else {
        list[(*n)++] = (uint32_t)count;
        return 0;
    }
    return -EINVAL;
}

int kvb_thread_counts_parse(const char *text, uint32_t most, uint32_t *list, size_t room, size_t *n, char *why,
                            size_t why_bytes)
{
    int error = 0;
    for (const char *at = text; at && !error; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char word[64], *dash;
        uint64_t first, last;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        if (!strcmp(word, "all"))
            snprintf(word, sizeof word, "%u", kvb_cores());
        dash = strchr(word, '-');
        if (dash)
            *dash++ = '\0';
        error = kvb_number_parse(word, 1, most, &first, why, why_bytes);
        if (!error)
            error = kvb_number_parse(dash ? dash : word, first, most, &last, why, why_bytes);
        for (uint64_t count = first; !error && count <= last; count++)
            error = thread_count_add(count, list, room, n, why, why_bytes);
    }
    return error;
}

void kvb_command_text(int argc, char **argv, char *text, size_t bytes)
{
    snprintf(text, bytes, "kvbench");
    for (int i = 0; i < argc; i++)
        kvb_shell_add(text, bytes, argv[i]);
}

bool kvb_command_without(const kvb_command *command, const char *const *names, int argc, char **argv, char *text,
                         size_t bytes)
{
    bool fits = true;
    for (int i = 1; i < argc && fits; i++) {
        const typed t = typed_of(command, argv + i);
        size_t n = 0;
        while (names[n] && (!t.option || strcmp(names[n], t.option->name)))
            n++;
        if (!names[n] && t.kind == OLD_KNOB) {
            char knob[512];
            fits = snprintf(knob, sizeof knob, "%s%s%s", t.option->name + 2, t.value ? "=" : "",
                            t.value ? t.value : "") < (int)sizeof knob &&
                   kvb_shell_add(text, bytes, "--set") && kvb_shell_add(text, bytes, knob);
        }
        for (int word = 0; word < t.words && !names[n] && t.kind != OLD_KNOB && fits; word++)
            fits = kvb_shell_add(text, bytes, argv[i + word]);
        i += t.words - 1;
    }
    return fits;
}

bool kvb_command_has(const kvb_command *command, const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const typed t = typed_of(command, argv + i);
        if (t.option && !strcmp(t.option->name, name))
            return true;
        i += t.words - 1;
    }
    return false;
}
