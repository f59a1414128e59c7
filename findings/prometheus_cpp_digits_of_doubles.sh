#!/bin/bash
# prometheus-cpp 1.0.1 (prometheus-cpp-dev of Debian 12; needs g++): digits of the values in the text format.
#
#   1. TextSerializer writes at most 16 significant digits, one too few for a double: the text of 0.1 + 0.2 is 0.3, and
#      that of 4503599627370497.5 is the integer 4503599627370498, so what a server reads is not what was set.
#   2. Integers are doubles, too: 9007199254740993 is written as ...992, and above 10^16 every last digit is 0.
#   3. Each value is written with the locale of its own stream: a decimal comma of the global locale does not appear.
# hako-server shows counters so: src/server/README.md.
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 2
command -v g++ > /dev/null || exit 2
download() { apt-get -o APT::Sandbox::User=root download -qq prometheus-cpp-dev libprometheus-cpp-core1.0; }
download 2>/dev/null || { apt-get update -qq && download; } || exit 2
for package in *.deb; do dpkg -x "$package" root || exit 2; done
ls prometheus-cpp-dev_1.0.1-* > /dev/null || exit 2
library=$dir/root/usr/lib/$(uname -m)-linux-gnu
cat > digits.cc <<'CODE'
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <iostream>
#include <locale>

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
};

int main() {
  std::locale::global(std::locale(std::locale::classic(), new Comma));
  prometheus::MetricFamily family{"n", "", prometheus::MetricType::Gauge, {}};
  for (const double value : {0.1 + 0.2, 4503599627370497.5, 9007199254740993.0, 12345678901234567.0, 0.5}) {
    prometheus::ClientMetric metric;
    metric.gauge.value = value;
    family.metric.push_back(metric);
  }
  std::cout << prometheus::TextSerializer().Serialize({family});
}
CODE
g++ -std=c++17 -I "$dir/root/usr/include" digits.cc "$library"/libprometheus-cpp-core.so.1.0 -o digits || exit 2
found=$(LD_LIBRARY_PATH=$library ./digits | grep -v '^#')
echo "$found"
expected='n 0.3
n 4503599627370498
n 9007199254740992
n 1.234567890123457e+16
n 0.5'
[ "$found" = "$expected" ] && exit
printf 'CHANGED, was\n%s\n' "$expected"
exit 1
