"""Random texts in the forms that CEL functions parse: numbers, times, addresses, versions, patterns."""

import random
from collections.abc import Sequence


class Texts:
    """Creates valid texts from one random source, or with `odd` also edge cases and invalid ones."""

    def __init__(self, rng: random.Random, odd: bool) -> None:
        self._rng = rng
        self._odd = odd

    def _of(self, usual: Sequence[str], odd: Sequence[str] = ()) -> str:
        return self._rng.choice((*usual, *odd) if self._odd else usual)

    def _number(self) -> int:
        return self._rng.choice((0, 1, 2, 3, 5, 7, 9, 10, 12, 24, 31, 59, 60, 99, 100, 255, 256, 1000))

    def _digits(self, longest: int) -> str:
        return str(self._rng.choice((self._number(), self._rng.randrange(10 ** self._rng.randint(1, longest)))))

    def _spoiled(self, text: str) -> str:
        """The text. With `odd`, sometimes one character is replaced, removed or added."""
        if not self._odd or self._rng.random() > 0.15:
            return text
        at, until = self._rng.randint(0, len(text)), self._rng.randint(0, 1)
        return text[:at] + self._of(("", "", *"-+.:/09xZ %é_")) + text[at + until :]

    def plain(self) -> str:
        """Any short text."""
        if self._rng.random() < 0.6:
            return self._of(_WORDS)
        return "".join(self._of(_LETTERS, _ODD_LETTERS) for _ in range(self._rng.randint(0, 6)))

    def quantity(self) -> str:
        """A Kubernetes quantity."""
        sign = self._of(("", "", "", "", "-", "+"))
        fraction = self._of(("", "", "", ".5", ".25", ".001"), _ODD_FRACTIONS)
        return self._spoiled(
            sign + self._digits(12 if not self._odd else 22) + fraction + self._of(_SUFFIXES, _ODD_SUFFIXES)
        )

    def version(self) -> str:
        """A semantic version."""
        numbers = [str(self._number()) for _ in range(int(self._of("3", "33333124")))]
        before = self._of(("", "", "", "-alpha", "-alpha.1", "-rc.1.2", "-0", "-a-b"), ("-01", "-1.a", "-"))
        build = self._of(("", "", "", "+build", "+1.2", "+001"), ("+",))
        return self._spoiled(self._of(("", "", ""), ("v", "V", "0")) + ".".join(numbers) + before + build)

    def ip(self) -> str:
        """An IPv4 or IPv6 address."""
        return self._spoiled(self._rng.choice((self._ipv4, self._ipv6))())

    def cidr(self) -> str:
        """A network in CIDR notation."""
        if self._rng.random() < 0.4:
            return self._spoiled(self._of(_NETWORKS, ("10.0.0.0/08", "10.0.0.0/33", "::/129", "10.0.0.0", "10.0.0.0/")))
        address, longest = self._rng.choice(((self._ipv4(), 32), (self._ipv6(), 128)))
        return self._spoiled(f"{address}/{self._rng.randint(0, longest + self._odd)}")

    def _ipv4(self) -> str:
        if self._rng.random() < 0.5:
            return self._of(_IPV4)
        return ".".join(str(min(self._number(), 255 + self._odd)) for _ in range(int(self._of("4", "4435"))))

    def _ipv6(self) -> str:
        if self._rng.random() < 0.5:
            return self._of(_IPV6, ("::ffff:1.2.3.4", "fe80::1%eth0", "::1.2.3", "1:2:3:4:5:6:7", "1::2::3"))
        groups = [f"{self._rng.randrange(16 ** self._rng.randint(1, 4)):x}" for _ in range(int(self._of("8852")))]
        if len(groups) < 8:
            groups.insert(self._rng.randint(1, len(groups) - 1), "")
        return ":".join(groups)

    def url(self) -> str:
        """A URL as in a request."""
        scheme = self._of(
            ("http://", "https://", "https://", "ftp://"), ("a+b-c.1://", "", "mailto:", "1x://", "HTTP:/")
        )
        user = self._of(("", "", "", "u@", "u:p@"), ("u%40:p%3a@", ":@", "ü@", "u ser@", "a@b@"))
        host = self._of(_HOSTS, _ODD_HOSTS) + self._of(("", "", "", ":80"), (":", ":x", ":080", ":99999"))
        path = self._of(("", "/", "/a/b", "/a%20b", "/a;b,c", "/a:b", "/..", "/é"), _ODD_PATHS)
        query = self._of(("", "", "?a=1", "?a=1&b=2&a=3", "?a=%20+x", "?"), ("?a;b=1", "?%zz=1", "?=1&&b", "?é=ü"))
        return self._spoiled(
            scheme + user + host + path + query + self._of(("", "", "", "#f"), ("#", "#a b", "#%20", "#%zz"))
        )

    def duration(self) -> str:
        """A duration in Go's format."""
        if self._odd and self._rng.random() < 0.1:
            return self._of(_ODD_DURATIONS)
        parts = [
            self._digits(3 if not self._odd else 10)
            + self._of(("", "", ".5", ".25"), (".", ".000000001", ".1234567891"))
            + self._of(("ns", "us", "µs", "ms", "s", "m", "h", "h", "m", "s"), ("d", "", "H"))
            for _ in range(self._rng.choice((1, 1, 1, 2, 2, 3)))
        ]
        return self._spoiled(self._of(("", "", "", "-"), ("+",)) + "".join(parts))

    def timestamp(self) -> str:
        """A time in RFC 3339 format."""
        year = self._of(
            ("2009", "2024", "1970", "2000", "1969", "1900"), ("0000", "0001", "9999", f"{self._number():04}")
        )
        date = self._of(("01-01", "02-28", "12-31", "07-13"), ("02-29", "02-30", "13-01", "00-10", "04-31", "1-1"))
        time = self._of(("00:00:00", "23:59:59", "12:30:01"), ("24:00:00", "23:60:00", "23:59:60", "1:02:03", "12:30"))
        fraction = self._of(("", "", "", ".5", ".123", ".123456789", ".000000001"), (".1234567891", ".", ",5"))
        zone = self._of(("Z", "Z", "Z", "+01:00", "-05:30", "+14:00"), ("+23:59", "-00:00", "+24:00", "z", "", "+0100"))
        return self._spoiled(f"{year}-{date}{self._of(('T',), ('T', 't', ' '))}{time}{fraction}{zone}")

    def zone(self) -> str:
        """A time zone name, or an offset."""
        return self._spoiled(self._of(_ZONES, ("-00:00", "99:99", "utc", "No/Where", "Local", "", "1:2", "+:")))

    def number(self) -> str:
        """A text for int(), uint(), double() or bool()."""
        return self._spoiled(self._of(_NUMBERS, _ODD_NUMBERS))

    def pattern(self, depth: int = 2) -> str:
        """A regular expression."""
        pieces = []
        for _ in range(self._rng.choice((1, 1, 2, 2, 3))):
            atom = self._of(_ATOMS, _ODD_ATOMS)
            if depth > 0 and self._rng.random() < 0.3:
                atom = f"{self._of(_GROUPS)}{self.pattern(depth - 1)})"
            elif self._odd and self._rng.random() < 0.05:
                atom = self._of(_BAD_PATTERNS)
            pieces.append(atom + self._of(_REPETITIONS) + self._of(("", "", "", "", "", "", "", "|")))
        return "".join(pieces)

    def format(self) -> tuple[str, str]:
        """A format string, and the letters of its clauses."""
        clauses = [self._of("sssdddfeexXob", "%y") for _ in range(self._rng.choice((0, 1, 1, 1, 2, 2, 3)))]
        precisions = [self._of(("", "", ".0", ".1", ".3"), (".12", ".1001", ".")) if x in "fe" else "" for x in clauses]
        text = "".join(
            f"{self._of(('', '', 'a ', 'é', '%%'))}%{y}{x}" for x, y in zip(clauses, precisions, strict=True)
        )
        return text + self._of(("", "", "!", "%%"), ("%",)), "".join(x for x in clauses if x != "%")

    def literal(self, text: str) -> str:
        """A CEL literal for a text."""
        roll = self._rng.random()
        if roll < 0.05:
            at = self._rng.randint(0, len(text))
            return self._quoted(_escaped(text[:at]) + self._of(_ESCAPES, _BAD_ESCAPES) + _escaped(text[at:]))
        if roll < 0.25 and not any(x in text for x in "'\"\n") and not text.endswith("\\"):
            return self._of("rR") + self._quoted(text)
        return self._quoted(_escaped(text))

    def _quoted(self, text: str) -> str:
        quote = self._of(("'", "'", "'", '"', '"', "'''", '"""'))
        return quote + text + quote


def _escaped(text: str) -> str:
    plain = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return "".join(plain.get(x, x) for x in text)


_WORDS = (
    *("", "a", "b", "ab", "abc", "a,b,c", "a b  c", "Abc", "ABC", "aaa", "abab", "true", "12", "x/y", "tacocat", "éa"),
    *("世界", "😀😁"),
)
_LETTERS = ("a", "b", "c", "ab", "A", "Z", "0", "7", " ", "-", "_", ".", "/", ",", "é", "世", "😀")
_ODD_LETTERS = ("\t", "\n", "%", "ß", "\u2028", "\u0301", "'", '"', "\\", "\ufeff", "\u00a0", "\x00", "\x7f")
_ESCAPES = (
    *("\\n", "\\t", "\\\\", "\\'", '\\"', "\\`", "\\?", "\\a", "\\x41", "\\X7a", "\\101", "\\u00e9"),
    *("\\U0001F600", "\\377"),
)
_BAD_ESCAPES = ("\\q", "\\x4", "\\400", "\\ud800", "\\U00110000", "\\8", "\\u12")
_SUFFIXES = ("", "", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "e3", "E2")
_ODD_SUFFIXES = (
    *("n", "u", "T", "P", "E", "Pi", "Ei", "e-3", "e+9", "E-12", "e0", "K", "ki", "e", "e19", "mi", "ni", "e1.5"),
)
_ODD_FRACTIONS = (".", ".0005", ".123456789", ".1234567891", ".000000000001", ".0000000001")
_IPV4 = (
    *("127.0.0.1", "0.0.0.0", "10.1.2.3", "192.168.0.1", "224.0.0.5", "169.254.1.1", "255.255.255.255", "224.0.1.1"),
    *("240.0.0.1", "127.255.0.1", "172.16.0.9"),
)
_IPV6 = (
    *("::", "::1", "fe80::1", "ff02::1", "ff01::2", "2001:db8::68", "64:ff9b::1.2.3.4", "1:2:3:4:5:6:7:8"),
    *("2001:DB8::A", "fec0::1", "febf::1", "fd00::1", "ff12::3", "1:0:0:2:0:0:0:3", "1:0:2:3:4:5:6:7"),
)
_NETWORKS = ("10.0.0.0/8", "192.168.0.0/24", "::/0", "2001:db8::/32", "fe80::1/64", "0.0.0.0/0", "10.1.2.3/32")
_HOSTS = ("example.com", "example.com", "[::1]", "1.2.3.4", "EXAMPLE.com")
_ODD_HOSTS = ("", "[fe80::1%25en0]", "exam%ple", "ex%20ample", "é.com", "a b", "[::1", "x:y", "[1.2.3.4]", "a%25b")
_ODD_PATHS = ("/a b", "/%zz", "//x", "/%2F", "/*", "*", "/a[b]", "a", '/"', "/%")
_ODD_DURATIONS = (
    *("0", "", "-0", "1", "9223372036854775807ns", "-2562047h47m16.854775808s", "2562048h", ".5s", "s", "1h 2m", "-"),
)
_ZONES = (
    *("UTC", "America/Phoenix", "Europe/Berlin", "Asia/Kathmandu", "Australia/Sydney", "02:00", "-07:30", "+11:00"),
    *("23:59", "America/New_York", "Pacific/Apia"),
)
_NUMBERS = ("0", "1", "-1", "42", "7", "1.5", "1e3", "true", "false", "100")
_ODD_NUMBERS = (
    *("+5", "007", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615"),
    *("18446744073709551616", "-0.0", "1E-400", "1e400", "inf", "-Infinity", "NaN", "0x1F", "0x1p-2", "1_000", ".5"),
    *("5.", "True", "TRUE", "t", "f", "False", "tRUE", "", " 1", "1 ", "4.9e-324", "123456789012345678901234567890"),
    *("0b11", "nan", "1e", "+", "0x", "1__0", "_1"),
)
_ATOMS = (
    *("a", "b", "c", "A", "B", "0", " ", "ab", ".", "\\d", "\\w", "\\s", "\\S", "\\D", "\\W", "\\.", "[a-c]", "[^a]"),
    *("^", "$", "\\b", "é"),
)
_ODD_ATOMS = (
    *("\\pL", "\\p{Greek}", "\\PN", "[[:alpha:]]", "[a\\-z]", "[]a]", "[\\d_]", "世", "\\x41", "\\x{1F600}", "\\n"),
    *("\\Qa.b\\E", "\\B", "\\A", "\\z", "[^\\W]", "[\\pL\\d]", "[[:^digit:]x]", "\\p{^Latin}", "(?i)s", "(?-i)"),
    "[a-]",
)
_BAD_PATTERNS = (
    *("[", "(", ")", "\\", "[z-a]", "\\8", "(?=a)", "(?<n", "*", "a**", "a{2,1}", "a{1001}", "\\pX", "[[:foo:]]"),
    *("(?i", "\\Z", "\\C", "(?P<n>a)(?P<n>b)", "x{2}{3}", "(?z)", "\\p{", "+", "(?P<n-n>a)", "(((a{100}){100}){100})"),
)
_GROUPS = ("(", "(", "(?:", "(?i)(", "(?P<n>", "(?<m>", "(?s:", "(?m:", "(?i:", "(?U:")
_REPETITIONS = (*("",) * 8, "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{0,2}", "{,2}", "{2,3}?", "{0}")
