"""Templates of expressions, one line each: the result type and the form.

`<T>` is a hole for an expression of a type, `<x:T>` for the name of a variable of that type. A type of one letter
stands for any type, the same in the whole line, or for one of those in `CHOICES`. The prefix `text-` means a text from
which a value of the named type can be parsed.
"""

from collections.abc import Mapping

FORMS = """
T: (<bool>) ? (<T>) : (<T>)
T: <list(T)>[<int>]
T: <map(K, T)>[<K>]
T: <optional(T)>.value()
T: <optional(T)>.orValue(<T>)
T: cel.bind(<x:U>, <U>, <T>)
bool: <bool> && <bool>
bool: <bool> || <bool>
bool: !<bool>
bool: <T> == <T>
bool: <T> != <T>
bool: <N> == dyn(<M>)
bool: <O> < <O>
bool: <O> <= <O>
bool: <O> > <O>
bool: <O> >= <O>
bool: <N> < <M>
bool: <N> >= <M>
bool: <T> in <list(T)>
bool: <K> in <map(K, T)>
bool: bool(<string>)
bool: bool(<bool>)
bool: has(<map(string, T)>.a)
bool: has(<map(string, T)>.?b)
bool: <string>.contains(<string>)
bool: <string>.startsWith(<string>)
bool: <string>.endsWith(<string>)
bool: <string>.matches(<text-pattern>)
bool: matches(<string>, <text-pattern>)
bool: <list(T)>.all(<x:T>, <bool>)
bool: <list(T)>.exists(<x:T>, <bool>)
bool: <list(T)>.exists_one(<x:T>, <bool>)
bool: <map(K, T)>.all(<x:K>, <bool>)
bool: <map(K, T)>.exists(<x:K>, <bool>)
bool: <list(T)>.all(<i:int>, <x:T>, <bool>)
bool: <list(T)>.exists(<i:int>, <x:T>, <bool>)
bool: <list(T)>.existsOne(<i:int>, <x:T>, <bool>)
bool: <map(K, T)>.exists(<k:K>, <x:T>, <bool>)
bool: <map(K, T)>.existsOne(<k:K>, <x:T>, <bool>)
bool: sets.contains(<list(T)>, <list(T)>)
bool: sets.equivalent(<list(T)>, <list(T)>)
bool: sets.intersects(<list(T)>, <list(T)>)
bool: <optional(T)>.hasValue()
bool: <list(O)>.isSorted()
bool: <list(T)>.includes(<T>)
bool: <T>.includes(<T>)
bool: isQuantity(<text-quantity>)
bool: <quantity>.isInteger()
bool: <quantity>.isGreaterThan(<quantity>)
bool: <quantity>.isLessThan(<quantity>)
bool: isSemver(<text-version>)
bool: isSemver(<text-version>, <bool>)
bool: <semver>.isGreaterThan(<semver>)
bool: <semver>.isLessThan(<semver>)
bool: isIP(<text-ip>)
bool: ip.isCanonical(<text-ip>)
bool: <ip>.isUnspecified()
bool: <ip>.isLoopback()
bool: <ip>.isLinkLocalMulticast()
bool: <ip>.isLinkLocalUnicast()
bool: <ip>.isGlobalUnicast()
bool: isCIDR(<text-cidr>)
bool: <cidr>.containsIP(<text-ip>)
bool: <cidr>.containsIP(<ip>)
bool: <cidr>.containsCIDR(<text-cidr>)
bool: <cidr>.containsCIDR(<cidr>)
bool: isURL(<text-url>)
int: <int> + <int>
int: <int> - <int>
int: <int> * <int>
int: <int> / <int>
int: <int> % <int>
int: -<int>
int: int(<N>)
int: int(<text-number>)
int: int(<timestamp>)
int: int(<duration>)
int: size(<string>)
int: size(<bytes>)
int: size(<list(T)>)
int: size(<map(K, T)>)
int: <string>.size()
int: <bytes>.size()
int: <list(T)>.size()
int: <map(K, T)>.size()
int: <string>.indexOf(<string>)
int: <string>.indexOf(<string>, <int>)
int: <string>.lastIndexOf(<string>)
int: <string>.lastIndexOf(<string>, <int>)
int: <list(T)>.indexOf(<T>)
int: <list(T)>.lastIndexOf(<T>)
int: sign(<quantity>)
int: <quantity>.sign()
int: <quantity>.asInteger()
int: <quantity>.compareTo(<quantity>)
int: <semver>.major()
int: <semver>.minor()
int: <semver>.patch()
int: <semver>.compareTo(<semver>)
int: <ip>.family()
int: <cidr>.prefixLength()
int: <timestamp>.getFullYear()
int: <timestamp>.getMonth()
int: <timestamp>.getDayOfYear()
int: <timestamp>.getDayOfMonth()
int: <timestamp>.getDate()
int: <timestamp>.getDayOfWeek()
int: <timestamp>.getHours()
int: <timestamp>.getMinutes()
int: <timestamp>.getSeconds()
int: <timestamp>.getMilliseconds()
int: <timestamp>.getFullYear(<text-zone>)
int: <timestamp>.getDayOfYear(<text-zone>)
int: <timestamp>.getDate(<text-zone>)
int: <timestamp>.getHours(<text-zone>)
int: <timestamp>.getMinutes(<text-zone>)
int: <duration>.getHours()
int: <duration>.getMinutes()
int: <duration>.getSeconds()
int: <duration>.getMilliseconds()
uint: <uint> + <uint>
uint: <uint> - <uint>
uint: <uint> * <uint>
uint: <uint> / <uint>
uint: <uint> % <uint>
uint: uint(<N>)
uint: uint(<text-number>)
double: <double> + <double>
double: <double> - <double>
double: <double> * <double>
double: <double> / <double>
double: -<double>
double: double(<N>)
double: double(<text-number>)
double: <quantity>.asApproximateFloat()
string: <string> + <string>
string: string(<S>)
string: string(<string>)
string: string(<bytes>)
string: string(<bool>)
string: string(<timestamp>)
string: string(<ip>)
string: string(<cidr>)
string: <string>.charAt(<int>)
string: <string>.lowerAscii()
string: <string>.upperAscii()
string: <string>.trim()
string: <string>.replace(<string>, <string>)
string: <string>.replace(<string>, <string>, <int>)
string: <string>.substring(<int>)
string: <string>.substring(<int>, <int>)
string: strings.quote(<string>)
string: <list(string)>.join()
string: <list(string)>.join(<string>)
string: <string>.find(<text-pattern>)
string: <url>.getScheme()
string: <url>.getHost()
string: <url>.getHostname()
string: <url>.getPort()
string: <url>.getEscapedPath()
bytes: <bytes> + <bytes>
bytes: bytes(<string>)
bytes: bytes(<bytes>)
duration: duration(<text-duration>)
duration: duration(<int>)
duration: duration(<duration>)
duration: <duration> + <duration>
duration: <duration> - <duration>
duration: <timestamp> - <timestamp>
duration: -<duration>
timestamp: timestamp(<text-timestamp>)
timestamp: timestamp(<int>)
timestamp: timestamp(<timestamp>)
timestamp: <timestamp> + <duration>
timestamp: <duration> + <timestamp>
timestamp: <timestamp> - <duration>
type: type(<T>)
list(string): <string>.split(<string>)
list(string): <string>.split(<string>, <int>)
list(string): <string>.findAll(<text-pattern>)
list(string): <string>.findAll(<text-pattern>, <int>)
list(string): <map(string, list(string))>[<string>]
list(int): lists.range(<int>)
list(int): lists.range(300)
list(T): <list(T)> + <list(T)>
list(T): <list(T)>.filter(<x:T>, <bool>)
list(T): <list(T)>.slice(<int>, <int>)
list(T): <list(T)>.reverse()
list(T): <list(T)>.distinct()
list(T): <list(list(T))>.flatten()
list(T): <list(T)>.sortBy(<x:T>, <C>)
list(T): [?<optional(T)>]
list(T): [<T>, ?<optional(T)>]
list(T): <list(optional(T))>.unwrapOpt()
list(T): optional.unwrap(<list(optional(T))>)
list(T): <list(U)>.map(<x:U>, <T>)
list(T): <list(U)>.map(<x:U>, <bool>, <T>)
list(K): <map(K, U)>.map(<k:K>, <K>)
list(T): <list(U)>.transformList(<i:int>, <x:U>, <T>)
list(T): <list(U)>.transformList(<i:int>, <x:U>, <bool>, <T>)
list(T): <map(K, U)>.transformList(<k:K>, <x:U>, <T>)
list(C): <list(C)>.sort()
list(dyn): <list(T)>.flatten(<int>)
map(string, list(string)): <url>.getQuery()
map(K, T): <map(K, U)>.transformMap(<k:K>, <x:U>, <T>)
map(K, T): <map(K, U)>.transformMap(<k:K>, <x:U>, <bool>, <T>)
map(int, T): <list(U)>.transformMap(<i:int>, <x:U>, <T>)
map(K, T): <list(U)>.transformMapEntry(<i:int>, <x:U>, {<K>: <T>})
map(K, T): <map(J, U)>.transformMapEntry(<k:J>, <x:U>, {<K>: <T>})
map(K, T): <map(J, U)>.transformMapEntry(<k:J>, <x:U>, <bool>, {<K>: <T>})
map(K, T): {?<K>: <optional(T)>}
map(K, T): {<K>: <T>, ?<K>: <optional(T)>}
optional(T): optional.of(<T>)
optional(T): optional.ofNonZeroValue(<T>)
optional(T): optional.none()
optional(T): <list(T)>[?<int>]
optional(T): <map(K, T)>[?<K>]
optional(T): <map(string, T)>.?a
optional(T): <optional(map(string, T))>.?b
optional(T): <optional(list(T))>[?<int>]
optional(T): <optional(T)>.or(<optional(T)>)
optional(T): <optional(U)>.optMap(<x:U>, <T>)
optional(T): <optional(U)>.optFlatMap(<x:U>, <optional(T)>)
optional(T): <list(T)>.first()
optional(T): <list(T)>.last()
optional(format): format.named(<text-format>)
optional(list(string)): format.<named-format>().validate(<string>)
optional(list(string)): <format>.validate(<string>)
S: <list(S)>.sum()
C: <list(C)>.min()
C: <list(C)>.max()
quantity: quantity(<text-quantity>)
quantity: <quantity>.add(<quantity>)
quantity: <quantity>.add(<int>)
quantity: <quantity>.sub(<quantity>)
quantity: <quantity>.sub(<int>)
semver: semver(<text-version>)
semver: semver(<text-version>, <bool>)
ip: ip(<text-ip>)
ip: <cidr>.ip()
cidr: cidr(<text-cidr>)
cidr: <cidr>.masked()
url: url(<text-url>)
format: format.<named-format>()
dyn: dyn(<T>)
int: google.protobuf.Int64Value{value: <int>}
int: google.protobuf.Int64Value{?value: <optional(int)>}
int: google.protobuf.Int32Value{value: <int>}
uint: google.protobuf.UInt64Value{value: <uint>}
double: google.protobuf.DoubleValue{value: <double>}
double: google.protobuf.FloatValue{value: <double>}
string: google.protobuf.StringValue{value: <string>}
bool: google.protobuf.BoolValue{value: <bool>}
bytes: google.protobuf.BytesValue{value: <bytes>}
duration: google.protobuf.Duration{seconds: <int>, nanos: <int>}
timestamp: google.protobuf.Timestamp{nanos: <int>}
dyn: google.protobuf.Value{string_value: <string>}
dyn: google.protobuf.Value{list_value: <list(T)>}
map(string, dyn): google.protobuf.Struct{fields: <map(string, T)>}
list(dyn): google.protobuf.ListValue{values: <list(T)>}
"""

CHOICES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys("CO", ("int", "string", "uint", "double", "bool", "bytes", "duration", "timestamp")),
    **dict.fromkeys("JK", ("string", "string", "int", "uint", "bool")),
    **dict.fromkeys("MN", ("int", "uint", "double")),
    "S": ("int", "uint", "double", "duration"),
}
"""Types that can be ordered, be a map key, be a number, be summed."""
