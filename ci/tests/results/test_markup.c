/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: whatever text there is, what stands in XML is what XML 1.0 can hold, and comes back as it was where it can. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "results/markup.h"

static void assert_xml(const char *text, const char *want)
{
    char *got = NULL;
    size_t bytes;
    FILE *out = open_memstream(&got, &bytes);

    assert_non_null(out);
    kvb_xml_put(text, out);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

static void test_xml(void **state)
{
    (void)state;
    assert_xml("", "");
    assert_xml("k=f16,v=q4_0 \xc3\xa9\xf0\x9f\x98\x80", "k=f16,v=q4_0 \xc3\xa9\xf0\x9f\x98\x80");
    assert_xml("<a & \"b\" 'c'>", "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt;");
    assert_xml("]]>", "]]&gt;");
    assert_xml("\t\r\n", "&#9;&#13;&#10;");
    assert_xml("\x01\x1b[31m\x1f\x7f", "??[31m?\x7f"); /* production 2 allows 0x7f */
    assert_xml("\xef\xbf\xbd\xef\xbf\xbe\xef\xbf\xbf.", "\xef\xbf\xbd??.");
    assert_xml("cut \xe2\x82", "cut ??");
    assert_xml("\xed\xa0\x80", "???"); /* a surrogate */
    assert_xml("\xff<", "?&lt;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_xml)};

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("markup", tests, NULL, NULL);
}
