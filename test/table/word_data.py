#!/usr/bin/env python3
"""Writes test/table/word_data.h: words as Python's unicodedata and str.casefold have them, which share no code with utf8proc.

test/table/word_data.py > test/table/word_data.h, with the package unicodedata2 of the Unicode version that utf8proc has, or a Python of
that version. (Unicode 15.0 has the case foldings of 14.0, which Python 3.11 has.)
"""
import zlib

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

# Default_Ignorable_Code_Point of DerivedCoreProperties.txt, which unicodedata lacks.
IGNORED = [(0xad, 0xad), (0x34f, 0x34f), (0x61c, 0x61c), (0x115f, 0x1160), (0x17b4, 0x17b5), (0x180b, 0x180f), (0x200b, 0x200f),
           (0x202a, 0x202e), (0x2060, 0x206f), (0x3164, 0x3164), (0xfe00, 0xfe0f), (0xfeff, 0xfeff), (0xffa0, 0xffa0), (0xfff0, 0xfff8),
           (0x1bca0, 0x1bca3), (0x1d173, 0x1d17a), (0xe0000, 0xe0fff)]
TEXTS = [
    'Ärger ärger ÄRGER A\u0308rger', 'Straße STRASSE STRAẞE', 'Ωδυσσεύς ΩΔΥΣΣΕΎΣ', 'Ελλάς ΕΛΛΆΣ', 'ᾳ\u0301 ᾴ \u03b1\u0301\u0345 ΑΊ', 'İstanbul ISTANBUL ıstanbul',
    'Ёлка ЁЛКА ёлка, Ѐ', 'Čeština ČEŠTINA C\u030cES\u030cTINA', 'Việt VIỆT Vie\u0323\u0302t Vie\u0302\u0323t', 'ＡＢＣ abc ａｂｃ１２', 'ﬁnal FINAL oﬃce OFFICE',
    '한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165 ㅎㅏㄴ', '東京タワー、ﾄｳｷｮｳﾀﾜｰ。佐々木', '日本語のテキスト', 'ガ ｶﾞ カ\u3099', 'हिन्दी भाषा हिंदी',
    'மொழி தமிழ்', 'ภาษาไทย ภาษา\u200bไทย', 'שָׁלוֹם שלום', 'العربيّة العربية ﺍﻟﻌﺮﺑﻴﺔ', 'می\u200cخواهم میخواهم', 'Donau\u00addampf DONAUDAMPF', 'x² H₂O 5㎏ Ⅷ ⅷ ½ №5 ™ Foo™ Foo®',
    'don’t don\'t l’été', 'snake_case ＿x a‿b', '10€ 5% a+b a·b', '1\ufe0f\u20e3 ❤\ufe0f 👩\u200d💻 ok', '\u0301x <\u0338y ≮y ¨z \u00a0w', 'Ǆ ǆ ǅ Ǉ', 'Å Å å A\u030a', 'ſ K ϐ ϑ', 'ꭰ Ꭰ Ⴀ ⴀ ა Ა',
    '𐐀 𐐨 𝐀𝟙 𞤀 𞤢', '\ue000x \U000f0000 \u0378y', 'e\u0301\u0327 e\u0327\u0301 ȩ\u0301', 'q\u0307\u0323 q\u0323\u0307 Q\u0323\u0307', 'ŉ ǰ ΐ և', 'ﷺ', '\u1e9b\u0323 ṩ \u017f\u0323\u0307',
    '\u2460\u2474 \u2126 \u212b', 'x' * 300 + 'É é', 'é' * 150 + ' ' + 'e\u0301' * 150, '𝐀' * 250, '\u3000全角\u3000空白\u3000', 'Łódź ŁÓDŹ', 'ÅNGSTRÖM ångström', 'Þór ÞÓR Æ æ Ø ø']


def kind(c):
    if c == '\u200b':
        return 'end'
    category = unicodedata.category(c)
    if category != 'Cn' and any(low <= ord(c) <= high for low, high in IGNORED):  # utf8proc has no properties of what is not assigned
        return 'ignored'
    if category[0] == 'M':
        return 'mark'
    return 'letter' if category[0] in 'LN' or category in ('Pc', 'Co', 'Cn') else 'end'


def fold(run):
    def strip(text):
        return ''.join(c for c in text if kind(c) != 'ignored' and c != '\u200b')
    text = strip(unicodedata.normalize('NFD', run))
    for _ in range(3):
        text = strip(unicodedata.normalize('NFKC', text.casefold()))
    word = text.encode()[:200]
    return word.decode(errors='ignore').encode()


def words(text):
    found, run, has_letter = [], '', False
    for c in text + ' ':
        what = kind(c)
        if what == 'end' or (what == 'mark' and not has_letter):
            if has_letter:
                found.append(fold(run))
            run, has_letter = '', False
        else:
            run += c
            has_letter = has_letter or what == 'letter'
    return [word for word in found if word]


def literal(data):
    return '"' + ''.join(chr(b) if 32 <= b < 127 and b not in b'"\\' else '\\%03o' % b for b in data).replace('?', '\\?') + '"'


def digest(block):
    crc = 0
    for point in range(block * 0x1000, (block + 1) * 0x1000):
        if 0xd800 <= point < 0xe000:
            continue
        for text in (chr(point), 'x' + chr(point) + 'Y'):
            crc = zlib.crc32(b'\n'.join(words(text)) + b'\0', crc)
    return crc


blocks = list(range(0x40)) + [0xe0, 0xf0, 0x10f]
print('// Written by test/table/word_data.py.')
print('#pragma once')
print('\n#include <cstdint>\n#include <string_view>\n#include <vector>\n')
print('namespace hako::word_data {\n')
print('inline constexpr std::string_view kUnicodeVersion = "%s";\n' % unicodedata.unidata_version)
print('struct Text {\n  std::string_view text;\n  std::vector<std::string_view> words;\n};')
print('inline const std::vector<Text> kTexts = {')
print(',\n'.join('    {%s, {%s}}' % (literal(text.encode()), ', '.join(map(literal, words(text)))) for text in TEXTS) + '};\n')
print('// Of each 4096 code points: the CRC-32 of the words of the character alone and between x and Y, each followed by a line feed but')
print('// the last of a text, which a zero byte follows.')
print('struct Block {\n  std::uint32_t number, crc;\n};')
print('inline const std::vector<Block> kBlocks = {')
print(',\n'.join('    {0x%x, 0x%08x}' % (block, digest(block)) for block in blocks) + '};\n')
print('}  // namespace hako::word_data')
